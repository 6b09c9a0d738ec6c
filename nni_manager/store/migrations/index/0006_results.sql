-- What lists show of an experiment that is closed: trials by status, the best of them.

ALTER TABLE experiments ADD COLUMN results TEXT NOT NULL DEFAULT '';  -- JSON; empty: not known
