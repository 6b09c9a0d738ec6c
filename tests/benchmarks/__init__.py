"""Figures, each beside its floor from the same run: `make bench`. Never part of the tests."""
