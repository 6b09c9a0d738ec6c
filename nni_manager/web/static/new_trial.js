// The form of a new trial: fields of unselected branches are hidden. Without this script all are visible, and the server
// uses those of the selected branches.

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
