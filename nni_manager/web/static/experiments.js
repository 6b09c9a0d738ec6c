// The list of experiments: filter options apply at once, and two to five ticked rows can be compared. Without this script
// the filter has a button, and the comparison page states how many experiments it accepts.

import { live } from "./live.js";

const MOST = 5;

function ticked() {
  return document.querySelectorAll("input[name=ids]:checked").length;
}

function offer() {
  const button = document.getElementById("compare");
  if (!button) return;
  const count = ticked();
  button.disabled = count < 2 || count > MOST;
  const words = count > MOST ? `${count} ticked: compare at most ${MOST}` : `${count} ticked`;
  document.getElementById("compare-words").textContent = count ? words : "tick two to five";
}

function filter(form) {
  const values = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  live.go(`${form.action}?${values}`);
}

document.addEventListener("change", (event) => {
  if (event.target.name === "ids") offer();
  else if (event.target.form?.id === "filter" && event.target.tagName === "SELECT") filter(event.target.form);
});
document.addEventListener("submit", (event) => {
  if (event.target.id !== "filter") return;
  event.preventDefault();
  filter(event.target);
});
document.addEventListener("replaced", offer);
offer();
