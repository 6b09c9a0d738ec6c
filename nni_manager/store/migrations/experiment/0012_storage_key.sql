-- A part of the names of the experiment's folders on storage that nobody can guess.

ALTER TABLE experiment ADD COLUMN storage_key TEXT NOT NULL DEFAULT '';     -- empty: made without, and found so
