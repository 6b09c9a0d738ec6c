-- One experiment. All times are milliseconds since the epoch, UTC.

CREATE TABLE experiment (
    id                TEXT PRIMARY KEY,
    status            TEXT NOT NULL,
    error             TEXT NOT NULL DEFAULT '',  -- why status is ERROR
    hold_code         TEXT NOT NULL DEFAULT '',
    hold_sentence     TEXT NOT NULL DEFAULT '',
    hold_details      TEXT NOT NULL DEFAULT '',
    config            TEXT NOT NULL,             -- canonical JSON, as NNI's clients see it
    interpreter       TEXT NOT NULL,             -- the caller's Python
    folder            TEXT NOT NULL,             -- absolute; rewritten when the folder was moved
    created_ms        INTEGER NOT NULL,
    ended_ms          INTEGER,
    exec_ms           INTEGER NOT NULL DEFAULT 0,  -- time spent active, up to counted_ms
    counted_ms        INTEGER NOT NULL,
    next_sequence_id  INTEGER NOT NULL DEFAULT 0,
    next_parameter_id INTEGER NOT NULL DEFAULT 0,
    ended_trials      INTEGER NOT NULL DEFAULT 0,
    resumed_end       INTEGER NOT NULL DEFAULT 0,  -- failures up to this end order do not count
    revision          INTEGER NOT NULL DEFAULT 0,
    view_port         INTEGER,                   -- port of its own page and API; null: none
    view_prefix       TEXT,                      -- without slashes at its ends
    warnings          TEXT NOT NULL DEFAULT '[]',  -- of its file: JSON, a list of {code, message}
    nonce             TEXT NOT NULL DEFAULT '',  -- carried by its jobs; empty (made by NNI): not compared
    storage_key       TEXT NOT NULL DEFAULT ''   -- random part of the names of its folders on storage; empty: none
);

CREATE TABLE trials (
    id              TEXT PRIMARY KEY,
    sequence_id     INTEGER NOT NULL UNIQUE,
    status          TEXT NOT NULL,
    parameter_id    INTEGER,                   -- null: given by a person
    record          TEXT NOT NULL,             -- the parameter record the trial reads, JSON
    created_ms      INTEGER NOT NULL,
    started_ms      INTEGER,
    ended_ms        INTEGER,
    attempt         INTEGER NOT NULL DEFAULT 1,
    asked           TEXT NOT NULL DEFAULT '',  -- the StopRequest; empty: none
    reason          TEXT NOT NULL DEFAULT '',
    message         TEXT NOT NULL DEFAULT '',
    wait_code       TEXT NOT NULL DEFAULT '',
    wait_sentence   TEXT NOT NULL DEFAULT '',
    wait_details    TEXT NOT NULL DEFAULT '{}',  -- JSON
    wait_ms         INTEGER NOT NULL DEFAULT 0,  -- when the wait reason was written
    intermediates   INTEGER NOT NULL DEFAULT 0,  -- of the current attempt
    last_value      REAL,                        -- the latest intermediate's number
    final_data      TEXT,                        -- JSON as reported; the first final result counts
    final_value     REAL,                        -- its number; null for NaN
    end_order       INTEGER,                     -- 1, 2, …: the order in which trials ended
    failure_key     TEXT NOT NULL DEFAULT '',    -- equal for failures of the same kind; empty: not failed
    last_words      TEXT NOT NULL DEFAULT '',    -- last line of stderr, where it says why
    repeats         TEXT NOT NULL DEFAULT '',    -- the trial that a person ran again, as it was or changed; empty: none
    continues       TEXT NOT NULL DEFAULT ''     -- the trial whose checkpoint it begins with; empty: none
);
CREATE INDEX trials_by_status ON trials (status);
CREATE UNIQUE INDEX trials_by_end ON trials (end_order) WHERE end_order IS NOT NULL;
CREATE INDEX trials_by_failure ON trials (failure_key, end_order) WHERE failure_key <> '';

CREATE TABLE attempts (
    trial_id       TEXT NOT NULL REFERENCES trials (id),
    number         INTEGER NOT NULL,
    job_name       TEXT NOT NULL UNIQUE,
    service        TEXT NOT NULL DEFAULT '',
    state          TEXT NOT NULL,                -- INTENT, or a JobState
    handle         TEXT,                         -- JSON, opaque
    link           TEXT NOT NULL DEFAULT '',     -- page of the job on its platform
    place          TEXT NOT NULL DEFAULT '',     -- where it runs, in words
    exit_code      INTEGER,
    signal         INTEGER,
    native_reason  TEXT NOT NULL DEFAULT '',     -- the platform's own word, for people
    cause          TEXT NOT NULL DEFAULT '',     -- a Reason, for decisions; empty: none
    message        TEXT NOT NULL DEFAULT '',
    stderr_tail    TEXT NOT NULL DEFAULT '',
    wait_code      TEXT NOT NULL DEFAULT '',     -- the platform's reason why a PENDING job waits
    wait_sentence  TEXT NOT NULL DEFAULT '',
    wait_details   TEXT NOT NULL DEFAULT '{}',   -- JSON
    unreachable_ms INTEGER,                      -- since when this job cannot be observed
    unreachable    TEXT NOT NULL DEFAULT '',     -- why
    interruptions  TEXT NOT NULL DEFAULT '[]',   -- JSON: [{sinceMs, untilMs, sentence}], past times out of reach
    given_up       TEXT NOT NULL DEFAULT '',     -- why another attempt followed: PLATFORM, USER_CODE, STOPPED
    intended_ms    INTEGER NOT NULL,
    started_ms     INTEGER,
    ended_ms       INTEGER,
    final_seen_ms  INTEGER,                      -- when the platform's end of it was stored
    closed         INTEGER NOT NULL DEFAULT 0,   -- decided; further reports are rejected
    forgotten      INTEGER NOT NULL DEFAULT 0,   -- the platform keeps nothing of it
    channel        TEXT NOT NULL DEFAULT '',     -- keeper, push, pull, exec; empty: not known yet
    runner_version TEXT NOT NULL DEFAULT '',
    runner_exit    TEXT,                         -- JSON, as the runner posted it
    runner_exit_ms INTEGER,                      -- when it was stored
    containers     TEXT NOT NULL DEFAULT '[]',   -- JSON: ids of the containers that registered, the newest last
    epoch          INTEGER NOT NULL DEFAULT 0,   -- how often its outboxes began afresh
    doubt          TEXT NOT NULL DEFAULT '',     -- sentences about results that may be missing
    PRIMARY KEY (trial_id, number)
) WITHOUT ROWID;
CREATE INDEX attempts_kept ON attempts (forgotten) WHERE forgotten = 0;

CREATE TABLE outboxes (
    id        INTEGER PRIMARY KEY,
    trial_id  TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    name      TEXT NOT NULL,                   -- path below the attempt's folder
    offset    INTEGER NOT NULL DEFAULT 0,      -- bytes stored so far
    lines     INTEGER NOT NULL DEFAULT 0,      -- number of the next line
    base      INTEGER NOT NULL DEFAULT 0,      -- offset where the present file begins
    base_lines INTEGER NOT NULL DEFAULT 0,     -- number of its first line
    UNIQUE (trial_id, attempt, name)
);

CREATE TABLE metrics (
    id        INTEGER PRIMARY KEY,
    outbox    INTEGER NOT NULL REFERENCES outboxes (id),
    number    INTEGER NOT NULL,                -- its line in the outbox
    trial_id  TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    type      TEXT NOT NULL,                   -- PERIODICAL, FINAL
    sequence  INTEGER NOT NULL,                -- 0, 1, … among the attempt's intermediates; 0 for a final
    stored_ms INTEGER NOT NULL,
    data      TEXT NOT NULL,                   -- JSON as reported
    value     REAL,                            -- its number; null when it has none or is NaN
    epoch     INTEGER NOT NULL DEFAULT 0,      -- of the attempt, when this was stored
    UNIQUE (outbox, number)
);
CREATE INDEX metrics_by_trial ON metrics (trial_id, attempt);

CREATE TABLE services (
    name          TEXT PRIMARY KEY,              -- openpai, openpai-2
    hold_code     TEXT NOT NULL DEFAULT '',
    hold_sentence TEXT NOT NULL DEFAULT '',
    hold_details  TEXT NOT NULL DEFAULT '',
    settings      TEXT NOT NULL DEFAULT '{}',    -- JSON: its section, kept after it left the config
    removed       INTEGER NOT NULL DEFAULT 0     -- takes no new attempts
) WITHOUT ROWID;

CREATE TABLE imports (
    id        INTEGER PRIMARY KEY,
    stored_ms INTEGER NOT NULL,
    data      TEXT NOT NULL                    -- JSON list of {parameter, value}
);

-- NNI's tables. The first is written by us, one row per save; the other two are views over the tables above, so that
-- NNI's own tools can read our folders.

CREATE TABLE ExperimentProfile (
    params TEXT, id TEXT, execDuration INTEGER, startTime INTEGER, endTime INTEGER, logDir TEXT,
    nextSequenceId INTEGER, revision INTEGER
);
CREATE INDEX ExperimentProfile_id ON ExperimentProfile (id);

-- NNI shows one path: the platform's page of the job where there is one.
CREATE VIEW TrialJobEvent AS
SELECT timestamp, trialJobId, event, data, logPath, sequenceId, message, environmentId FROM (
    SELECT stored_ms AS timestamp, '' AS trialJobId, 'IMPORT_DATA' AS event, data, NULL AS logPath,
           NULL AS sequenceId, NULL AS message, NULL AS environmentId, 0 AS step
    FROM imports
    UNION ALL
    SELECT created_ms, '', 'ADD_CUSTOMIZED', record, NULL, sequence_id, NULL, NULL, 1
    FROM trials WHERE parameter_id IS NULL
    UNION ALL
    SELECT created_ms, trials.id, 'WAITING', record, NULL, sequence_id, NULL, NULL, 2
    FROM trials
    UNION ALL
    SELECT trials.started_ms, trials.id, 'RUNNING', record, coalesce(NULLIF(a.link, ''), folder || '/trials/'
               || trials.id || CASE WHEN attempt > 1 THEN '-' || attempt ELSE '' END), sequence_id, NULL, NULL, 3
    FROM experiment, trials LEFT JOIN attempts a ON a.trial_id = trials.id AND a.number = trials.attempt
    WHERE trials.started_ms IS NOT NULL
    UNION ALL
    SELECT trials.ended_ms, trials.id, trials.status, NULL, coalesce(NULLIF(a.link, ''), folder || '/trials/'
               || trials.id || CASE WHEN attempt > 1 THEN '-' || attempt ELSE '' END), sequence_id,
           NULLIF(trials.message, ''), NULL, 4
    FROM experiment, trials LEFT JOIN attempts a ON a.trial_id = trials.id AND a.number = trials.attempt
    WHERE trials.ended_ms IS NOT NULL
) ORDER BY timestamp, step;

CREATE VIEW MetricData AS
SELECT m.stored_ms AS timestamp, m.trial_id AS trialJobId, CAST(t.parameter_id AS TEXT) AS parameterId,
       m.type, m.sequence, json_quote(m.data) AS data
FROM metrics m JOIN trials t ON t.id = m.trial_id AND t.attempt = m.attempt
ORDER BY m.id;
