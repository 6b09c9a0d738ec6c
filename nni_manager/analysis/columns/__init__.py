"""The trials of an experiment as numeric columns in memory, updated from its database."""
