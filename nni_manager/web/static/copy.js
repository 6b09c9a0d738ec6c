// Buttons that copy a text. They are hidden without this script or without access to the clipboard.

const SHOWN_MS = 1500;

function offer() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
}

async function copy(button) {
  const words = button.textContent;
  if (button.dataset.busy) return;
  button.dataset.busy = "1";
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed";
  }
  setTimeout(() => {
    button.textContent = words;
    delete button.dataset.busy;
  }, SHOWN_MS);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (button) copy(button);
});
document.addEventListener("replaced", offer);
offer();
