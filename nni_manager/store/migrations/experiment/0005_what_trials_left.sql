-- Final results of the current attempt after the first one, which counts.
ALTER TABLE trials ADD COLUMN further_finals INTEGER NOT NULL DEFAULT 0;
CREATE INDEX trials_with_further_finals ON trials (sequence_id) WHERE further_finals > 0;

-- The step that was reported with an intermediate result; null: none was.
ALTER TABLE metrics ADD COLUMN step INTEGER;
CREATE INDEX metrics_with_step ON metrics (trial_id) WHERE step IS NOT NULL;

-- The code that trials of a service run in place: its files, as each of its states has them, and when a state began.
CREATE TABLE code_states (
    number INTEGER PRIMARY KEY,                -- 1, 2, …
    files  TEXT NOT NULL                       -- JSON: path → [bytes, mtime in ns, digest]; a digest '' is a missing file
);
CREATE TABLE code_changes (
    service  TEXT NOT NULL,
    since_ms INTEGER NOT NULL,                 -- 0: from the beginning
    number   INTEGER REFERENCES code_states (number),  -- null: there are too many states
    paths    TEXT NOT NULL DEFAULT '[]',       -- JSON: what differs from the state before
    trial_id TEXT NOT NULL DEFAULT '',         -- the first trial that ran it; empty: none yet
    PRIMARY KEY (service, since_ms)
) WITHOUT ROWID;

-- Warnings about what trials did, each code once.
CREATE TABLE noted_warnings (
    code    TEXT PRIMARY KEY,
    message TEXT NOT NULL
) WITHOUT ROWID;
