-- 1: the end of the attempt does not count as a platform retry.
ALTER TABLE attempts ADD COLUMN is_uncounted INTEGER NOT NULL DEFAULT 0;
