"""The kind Job of `batch/v1` in an API server: defaults, validation, and what a server of each version knows."""
