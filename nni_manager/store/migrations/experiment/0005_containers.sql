-- Which containers of an attempt have greeted, what the newest began afresh, and why results may be missing.

ALTER TABLE attempts ADD COLUMN containers TEXT NOT NULL DEFAULT '[]';    -- JSON: identities, the newest last
ALTER TABLE attempts ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;         -- how often outboxes were begun afresh
ALTER TABLE attempts ADD COLUMN doubt TEXT NOT NULL DEFAULT '';           -- sentences about results that may be missing
ALTER TABLE outboxes ADD COLUMN base INTEGER NOT NULL DEFAULT 0;          -- offset where the present file begins
ALTER TABLE outboxes ADD COLUMN base_lines INTEGER NOT NULL DEFAULT 0;    -- number of its first line
ALTER TABLE metrics ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;          -- of the attempt, when this was stored
