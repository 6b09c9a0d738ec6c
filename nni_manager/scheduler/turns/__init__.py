"""Turns of an experiment: the events that wake it, the transaction, and the calls after it."""
