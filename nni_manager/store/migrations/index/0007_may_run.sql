-- How many of the jobs may run; of the others only something is kept where they ran.

ALTER TABLE leftover_jobs ADD COLUMN may_run INTEGER;      -- null: not known
