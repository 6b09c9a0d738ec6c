"""Figures, each next to its floor from the same run: `make bench`. Never part of the tests."""
