"""The list of all experiments: what it shows of each, filter and order, and what is changed from it."""
