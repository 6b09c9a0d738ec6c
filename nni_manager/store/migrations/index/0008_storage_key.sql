-- What the names of the experiment's folders on storage have of their own, so that they are found when it is gone.

ALTER TABLE leftover_jobs ADD COLUMN storage_key TEXT NOT NULL DEFAULT '';  -- empty: they have nothing
