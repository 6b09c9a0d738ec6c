"""Turns: what wakes an experiment, what one turn records, and the calls that come of it."""
