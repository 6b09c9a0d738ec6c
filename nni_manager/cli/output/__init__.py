"""Formatting of values and tables; what the terminal supports."""
