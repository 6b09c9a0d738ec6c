-- Where each experiment's own page and API are served, and when it was last launched.

ALTER TABLE experiments ADD COLUMN view_port INTEGER;      -- null: it has no view
ALTER TABLE experiments ADD COLUMN view_prefix TEXT;       -- without slashes at its ends
ALTER TABLE experiments ADD COLUMN launched_ms INTEGER;    -- created, resumed or viewed; null: when it was created
