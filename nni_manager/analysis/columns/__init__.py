"""The trials of an experiment as numeric columns in memory, brought up to date from its database."""
