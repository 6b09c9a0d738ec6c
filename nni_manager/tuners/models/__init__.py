"""Tuners with a model of all results: a Gaussian process, a forest. They need the extra `gp`."""
