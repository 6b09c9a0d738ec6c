-- Several training services: what each of them is, and what is known of an attempt beside its state.

CREATE TABLE services (
    name          TEXT PRIMARY KEY,              -- openpai, openpai-2
    hold_code     TEXT NOT NULL DEFAULT '',
    hold_sentence TEXT NOT NULL DEFAULT '',
    hold_details  TEXT NOT NULL DEFAULT '',
    settings      TEXT NOT NULL DEFAULT '{}',    -- JSON: its section, kept when the config has it no more
    removed       INTEGER NOT NULL DEFAULT 0     -- takes nothing new
) WITHOUT ROWID;

ALTER TABLE experiment ADD COLUMN nonce TEXT NOT NULL DEFAULT '';          -- carried by its jobs; empty: not compared

ALTER TABLE attempts ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN link TEXT NOT NULL DEFAULT '';             -- where a person looks at the job
ALTER TABLE attempts ADD COLUMN place TEXT NOT NULL DEFAULT '';            -- where it runs, in words
ALTER TABLE attempts ADD COLUMN wait_code TEXT NOT NULL DEFAULT '';        -- the platform's own reason of a PENDING job
ALTER TABLE attempts ADD COLUMN wait_sentence TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN wait_details TEXT NOT NULL DEFAULT '{}';   -- JSON
ALTER TABLE attempts ADD COLUMN unreachable_ms INTEGER;                    -- since when this job cannot be asked about
ALTER TABLE attempts ADD COLUMN unreachable TEXT NOT NULL DEFAULT '';      -- why

UPDATE attempts SET service = (
    SELECT coalesce(json_extract(config, '$.trainingService.platform'),
                    json_extract(config, '$.trainingService[0].platform'), '') FROM experiment);

ALTER TABLE trials ADD COLUMN wait_details TEXT NOT NULL DEFAULT '{}';     -- JSON
ALTER TABLE trials ADD COLUMN wait_ms INTEGER NOT NULL DEFAULT 0;          -- when the reason was written

-- NNI shows one path: the platform's own page of the job where there is one.
DROP VIEW TrialJobEvent;
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
