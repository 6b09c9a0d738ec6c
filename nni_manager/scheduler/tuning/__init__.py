"""Tuning: the process of an experiment's tuner and assessor, and the calls to it."""
