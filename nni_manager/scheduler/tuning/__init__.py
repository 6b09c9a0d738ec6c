"""Tuning: the process of an experiment's tuner and assessor, and what it is asked."""
