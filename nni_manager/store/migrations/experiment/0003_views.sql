-- Where the experiment's own page and API are served while it is open.

ALTER TABLE experiment ADD COLUMN view_port INTEGER;       -- null: it has no view
ALTER TABLE experiment ADD COLUMN view_prefix TEXT;        -- without slashes at its ends
