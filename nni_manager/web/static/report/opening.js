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

export function selectedIn() {
  return [];
}
