"""Parts of a config, field by field."""
