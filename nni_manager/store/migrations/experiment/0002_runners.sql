-- What trial runners say of an attempt, and how its results come.

ALTER TABLE attempts ADD COLUMN channel TEXT NOT NULL DEFAULT '';         -- keeper, push, pull; empty: not known yet
ALTER TABLE attempts ADD COLUMN runner_version TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN runner_exit TEXT;                         -- JSON, as the runner posted it
ALTER TABLE attempts ADD COLUMN runner_exit_ms INTEGER;                   -- when it was stored
ALTER TABLE attempts ADD COLUMN final_seen_ms INTEGER;                    -- when the platform's end of it was stored
