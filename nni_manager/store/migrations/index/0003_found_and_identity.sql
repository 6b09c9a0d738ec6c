-- 1: its folder was found in the data directory, and it was not resumed since.
ALTER TABLE experiments ADD COLUMN found INTEGER NOT NULL DEFAULT 0;
-- Why its database cannot be read: a sentence; empty: it can.
ALTER TABLE experiments ADD COLUMN note TEXT NOT NULL DEFAULT '';

-- The data directory's name on other machines. The file `identity` has it, too: each restores the other.
CREATE TABLE identity (
    name TEXT NOT NULL
);
