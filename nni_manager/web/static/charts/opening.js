// Opens the trial of a point: in the drawer if the page has one, else on the trial's page.

import { note, pin } from "./pin.js";

// The prefix of all paths, taken from the address of the figure's answers.
function base(figure) {
  return figure.dataset.api.slice(0, figure.dataset.api.indexOf("/api/v1/"));
}

export function addressOf(figure, number) {
  return `${base(figure)}/experiments/${figure.dataset.experiment}/trials/${number}`;
}

// A part that can show a trial on this page listens to `opentrial` and calls preventDefault.
export function open(figure, number) {
  const event = new CustomEvent("opentrial", { detail: { number }, bubbles: true, cancelable: true });
  if (figure.dispatchEvent(event)) location.assign(addressOf(figure, number));
}

// With Shift, the selection of a point is toggled: its curve is drawn and its mark highlighted. With Alt, its card is
// pinned.
export function follow(figure, state, number, event) {
  if (event?.altKey) return void pin(figure, number, event);
  if (!event?.shiftKey) return open(figure, number);
  const selected = new Set(selectedIn(state));
  if (!selected.delete(number)) selected.add(number);
  state.set({ selected: selected.size ? [...selected].join(",") : null });
}

// The trial at the pointer or at the keyboard's position, or null.
export function point(figure, number) {
  note(figure, number);
}

export function selectedIn(state) {
  return (state.get("selected") ?? "").split(",").filter(Boolean).map(Number);
}
