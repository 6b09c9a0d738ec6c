// Replaces the link to a trial's page: scrolls to its row, if the report has one.

export function addressOf(_, number) {
  return `#trial-${number}`;
}

export function follow(figure, _, number) {
  document.getElementById(`trial-${number}`)?.scrollIntoView({ block: "center" });
}

export function open(figure, number) {
  follow(figure, null, number);
}

// The report's row contains everything that a card would show.
export function point() {}

export function selectedIn() {
  return [];
}
