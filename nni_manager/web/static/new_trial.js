// The form of a new trial: fields of branches that are not chosen are hidden. Without this script all are there, and the
// server takes those of the chosen ones.

const form = document.querySelector(".new-trial form");

function isShown(field) {
  const { parent, branch } = field.dataset;
  if (!parent) return true;
  const select = document.getElementById(parent);
  return select.value === branch && isShown(select.closest(".field"));
}

function arrange() {
  for (const field of form.querySelectorAll(".field")) field.hidden = !isShown(field);
}

for (const note of form.querySelectorAll(".only")) note.hidden = true;
form.addEventListener("change", arrange);
arrange();
form.querySelector("[aria-invalid=true]")?.focus();
