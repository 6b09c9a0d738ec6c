"""The manager's side of a keeper: reaching it, its verbs, its jobs, its machines."""
