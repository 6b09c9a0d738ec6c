-- What failed in the same way has the same key.

ALTER TABLE trials ADD COLUMN failure_key TEXT NOT NULL DEFAULT '';     -- empty: it has not failed
ALTER TABLE trials ADD COLUMN last_words TEXT NOT NULL DEFAULT '';      -- last line of stderr, where it says why
CREATE INDEX trials_by_failure ON trials (failure_key, end_order) WHERE failure_key <> '';
ALTER TABLE experiment ADD COLUMN resumed_end INTEGER NOT NULL DEFAULT 0;  -- ends up to this one do not count
