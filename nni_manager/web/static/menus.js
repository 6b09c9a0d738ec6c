// Menus. A scrolling box would clip a menu inside it, so the menu is positioned in the window, below its button or, if it
// does not fit, above. Escape or a click outside closes it. Without this script such a menu is part of its row.

const GAP_PX = 4;

function placed() {
  return document.querySelectorAll(".scroll details.menu[open]");
}

function place(menu) {
  const button = menu.querySelector(":scope > summary").getBoundingClientRect();
  const panel = menu.querySelector(":scope > :not(summary)");
  const { clientWidth, clientHeight } = document.documentElement;
  const below = clientHeight - button.bottom - 2 * GAP_PX;
  const above = button.top - 2 * GAP_PX;
  Object.assign(panel.style, { position: "fixed", margin: "0", maxHeight: "", inset: "auto" });
  const isBelow = panel.offsetHeight <= below || below >= above;
  panel.style.maxHeight = `${Math.min(isBelow ? below : above, 384)}px`;
  panel.style[isBelow ? "top" : "bottom"] = `${isBelow ? button.bottom + GAP_PX : clientHeight - button.top + GAP_PX}px`;
  const wanted = menu.classList.contains("right") ? button.right - panel.offsetWidth : button.left;
  panel.style.left = `${Math.max(GAP_PX, Math.min(wanted, clientWidth - panel.offsetWidth - GAP_PX))}px`;
}

function placeAll() {
  placed().forEach(place);
}

function escaped(event) {
  const menu = event.key === "Escape" && document.activeElement?.closest("details.menu[open]");
  if (!menu) return;
  const isInside = document.activeElement !== menu.querySelector(":scope > summary");
  menu.removeAttribute("open");
  if (isInside) menu.querySelector(":scope > summary").focus();
}

function pressedBeside(event) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.removeAttribute("open");
  }
}

// These events do not bubble.
document.addEventListener("toggle", placeAll, { capture: true });
document.addEventListener("scroll", placeAll, { capture: true, passive: true });
document.addEventListener("replaced", placeAll);
addEventListener("resize", placeAll);
addEventListener("keydown", escaped);
addEventListener("click", pressedBeside);
