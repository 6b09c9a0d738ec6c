"""The list of all experiments."""
