// The log of manager or tuner scrolls to its end, and follows new lines. Scrolling up stops following.

const part = document.getElementById("log-part");
let isAtEnd = true;

function box() {
  return part.querySelector("#log-text");
}

function toEnd() {
  const place = box();
  if (place && isAtEnd) place.scrollTop = place.scrollHeight;
}

function scrolled({ target }) {
  if (target === box()) isAtEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 24;
}

document.addEventListener("scroll", scrolled, { capture: true, passive: true });
part.addEventListener("replaced", toEnd);
toEnd();
