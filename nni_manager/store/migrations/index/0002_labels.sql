-- Notes, tags and whether it is archived, as JSON; the folder has them, too.

ALTER TABLE experiments ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
