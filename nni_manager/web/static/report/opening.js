// In place of the way to a trial's page: to its row, where the report has one.

export function addressOf(_, number) {
  return `#trial-${number}`;
}

export function follow(figure, _, number) {
  document.getElementById(`trial-${number}`)?.scrollIntoView({ block: "center" });
}

export function open(figure, number) {
  follow(figure, null, number);
}

// The report's row has all that a card would say.
export function point() {}

export function selectedIn() {
  return [];
}
