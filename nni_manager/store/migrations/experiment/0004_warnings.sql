-- What users should know although nothing is refused and nobody waits.

ALTER TABLE experiment ADD COLUMN warnings TEXT NOT NULL DEFAULT '[]';    -- of its file: JSON, a list of {code, message}
