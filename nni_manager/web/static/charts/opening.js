// From a point to its trial: the drawer takes it where the page has one, else the trial's page opens.

import { note, pin } from "./pin.js";

// The prefix of all paths, which the address of the figure's answers tells.
function base(figure) {
  return figure.dataset.api.slice(0, figure.dataset.api.indexOf("/api/v1/"));
}

export function addressOf(figure, number) {
  return `${base(figure)}/experiments/${figure.dataset.experiment}/trials/${number}`;
}

// Whatever shows a trial without leaving the page listens to `opentrial` and calls preventDefault.
export function open(figure, number) {
  const event = new CustomEvent("opentrial", { detail: { number }, bubbles: true, cancelable: true });
  if (figure.dispatchEvent(event)) location.assign(addressOf(figure, number));
}

// With Shift a point is selected, or not any longer: its curve is drawn, its mark stands out. With Alt its card is
// pinned.
export function follow(figure, state, number, event) {
  if (event?.altKey) return void pin(figure, number, event);
  if (!event?.shiftKey) return open(figure, number);
  const selected = new Set(selectedIn(state));
  if (!selected.delete(number)) selected.add(number);
  state.set({ selected: selected.size ? [...selected].join(",") : null });
}

// A trial that the pointer or the keyboard came to, or null.
export function point(figure, number) {
  note(figure, number);
}

export function selectedIn(state) {
  return (state.get("selected") ?? "").split(",").filter(Boolean).map(Number);
}
