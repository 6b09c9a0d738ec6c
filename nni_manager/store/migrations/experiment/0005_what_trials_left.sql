-- Final results of the current attempt after the first one, which counts.
ALTER TABLE trials ADD COLUMN further_finals INTEGER NOT NULL DEFAULT 0;
CREATE INDEX trials_with_further_finals ON trials (sequence_id) WHERE further_finals > 0;

-- The step that was reported with an intermediate result; null: none was.
ALTER TABLE metrics ADD COLUMN step INTEGER;

-- The code that trials on this machine ran in place, by the state of its files; null: not known.
ALTER TABLE attempts ADD COLUMN code_state INTEGER;
CREATE TABLE code_states (
    number  INTEGER PRIMARY KEY,       -- 1 for the code at the experiment's creation
    digest  TEXT NOT NULL UNIQUE,
    files   TEXT NOT NULL,             -- JSON: path → digest
    changed TEXT NOT NULL DEFAULT '[]',  -- JSON: paths that differ from the state before it, at its first time
    seen_ms INTEGER NOT NULL
);

-- Warnings about what trials did, each code once.
CREATE TABLE noted_warnings (
    code    TEXT PRIMARY KEY,
    message TEXT NOT NULL
) WITHOUT ROWID;
