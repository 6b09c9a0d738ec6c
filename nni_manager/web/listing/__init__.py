"""The list of all experiments: rows, filter and order."""
