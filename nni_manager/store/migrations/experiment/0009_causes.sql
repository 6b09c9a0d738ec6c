-- Whose word it is: the platform's own (for people) and ours (for decisions) have a column each. Until now a refused job
-- and a runner of another version stood where the platform's word did; RUNNER_FAILED never did, so it was the platform's.

ALTER TABLE attempts RENAME COLUMN reason TO native_reason;
ALTER TABLE attempts ADD COLUMN cause TEXT NOT NULL DEFAULT '';            -- a Reason; empty: none
UPDATE attempts SET cause = 'OUT_OF_MEMORY' WHERE native_reason = 'OOMKilled';
UPDATE attempts SET cause = native_reason, native_reason = ''
    WHERE native_reason IN ('SUBMIT_REJECTED', 'VERSION_MISMATCH') AND exit_code IS NULL AND signal IS NULL;
