-- Trials that ended well where keepCheckpoints is not `all`, until their checkpoints are removed.
CREATE TABLE checkpoints (
    trial_id TEXT PRIMARY KEY
) WITHOUT ROWID;

-- What is needed to repeat it, as REST has it; a table of its own, as the row of the experiment is written often.
CREATE TABLE provenance (
    record TEXT NOT NULL  -- JSON
);
