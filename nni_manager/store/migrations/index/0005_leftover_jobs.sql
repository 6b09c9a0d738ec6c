-- Jobs that may still run on a training service although their experiment is stopped or deleted.

CREATE TABLE leftover_jobs (
    experiment TEXT NOT NULL,
    service    TEXT NOT NULL,
    platform   TEXT NOT NULL,
    connection TEXT NOT NULL,              -- whoever reaches this next ends them
    section    TEXT NOT NULL,              -- JSON; secrets are references
    secrets    TEXT NOT NULL DEFAULT '{}', -- JSON: reference → value
    job_names  TEXT NOT NULL,              -- JSON; empty: those that are found by the experiment's id
    sentence   TEXT NOT NULL,              -- why they could not be ended
    noted_ms   INTEGER NOT NULL,
    PRIMARY KEY (experiment, service)
) WITHOUT ROWID;
