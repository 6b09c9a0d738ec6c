-- Since when the training service reports that it will never start the job as it is; null: it does not.
ALTER TABLE attempts ADD COLUMN hopeless_ms INTEGER;
