PRAGMA journal_mode=WAL;
BEGIN TRANSACTION;
CREATE TABLE experiments (
    id          TEXT PRIMARY KEY,
    folder      TEXT NOT NULL,             -- absolute
    name        TEXT,
    platform    TEXT NOT NULL,             -- names joined by comma when there are several
    status      TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    ended_ms    INTEGER,
    open        INTEGER NOT NULL,          -- 1: a daemon that starts must work on it
    view_port   INTEGER,                   -- port of its own page and API; null: none
    view_prefix TEXT,                      -- without slashes at its ends
    launched_ms INTEGER,                   -- created, resumed or viewed; null: when it was created
    results     TEXT NOT NULL DEFAULT ''   -- JSON: what lists show of a closed one; empty: not known
);
INSERT INTO "experiments" VALUES('exp1','/data/exp1','digits','local','RUNNING',1000,NULL,1,NULL,NULL,1500,'');
CREATE TABLE home (
    directory TEXT NOT NULL                -- absolute, without links
);
CREATE TABLE leftover_jobs (
    experiment  TEXT NOT NULL,
    service     TEXT NOT NULL,
    platform    TEXT NOT NULL,
    connection  TEXT NOT NULL,             -- `Platform.connection_key`: the next one connected there ends them
    section     TEXT NOT NULL,             -- JSON; secrets are references
    secrets     TEXT NOT NULL DEFAULT '{}',  -- JSON: reference → value
    job_names   TEXT NOT NULL,             -- JSON; empty: found by the experiment's id
    sentence    TEXT NOT NULL,             -- why they could not be ended
    noted_ms    INTEGER NOT NULL,
    may_run     INTEGER,                   -- how many may run; the others only left files. null: not known
    storage_key TEXT NOT NULL DEFAULT '',  -- part of the names of their folders on storage; empty: none
    PRIMARY KEY (experiment, service)
) WITHOUT ROWID;
CREATE TABLE leftovers (
    id     TEXT PRIMARY KEY,
    folder TEXT NOT NULL                   -- absolute
);
COMMIT;
PRAGMA application_id=1313753421;
PRAGMA user_version=1;
