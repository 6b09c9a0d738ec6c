-- When a job could not be asked about, as while its machine was away, and why.

ALTER TABLE attempts ADD COLUMN interruptions TEXT NOT NULL DEFAULT '[]';  -- JSON: sinceMs, untilMs, sentence
