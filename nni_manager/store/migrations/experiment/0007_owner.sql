-- Identity of the data directory whose daemon opened the experiment last; empty: unknown.
ALTER TABLE experiment ADD COLUMN owner TEXT NOT NULL DEFAULT '';

-- Trials whose folders exist while the database, restored from an older copy, has no row for them.
CREATE TABLE unrecorded_trials (
    id TEXT PRIMARY KEY
) WITHOUT ROWID;
