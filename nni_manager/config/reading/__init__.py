"""Text to values: YAML, scalars, placeholders, and where in a file each value stands."""
