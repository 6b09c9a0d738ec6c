-- `maximize` or `minimize`: the default of the user's tuner class, read when the experiment was created; empty: unknown.
ALTER TABLE experiment ADD COLUMN class_direction TEXT NOT NULL DEFAULT '';
