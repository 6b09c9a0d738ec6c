-- Trials that ended well where keepCheckpoints is not `all`, until their checkpoints are removed.

CREATE TABLE checkpoints (
    trial_id TEXT PRIMARY KEY
) WITHOUT ROWID;
