// Replaces the page's live values: a report does not change.

export const live = { onRevision: () => () => {} };
