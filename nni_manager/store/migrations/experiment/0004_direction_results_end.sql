-- `maximize` or `minimize`: the default of the user's tuner class, read when the experiment was created; empty: unknown.
ALTER TABLE experiment ADD COLUMN class_direction TEXT NOT NULL DEFAULT '';

-- Number of succeeded trials since the start or the last resume, all without a usable result; null: one had one.
ALTER TABLE experiment ADD COLUMN unusable_results INTEGER DEFAULT 0;
UPDATE experiment SET unusable_results = NULL
WHERE EXISTS (SELECT 1 FROM trials WHERE status = 'SUCCEEDED' AND final_data IS NOT NULL);

-- DONE: it was stopped after it was done; empty: it is open, or was stopped before.
ALTER TABLE experiment ADD COLUMN ended_as TEXT NOT NULL DEFAULT '';
