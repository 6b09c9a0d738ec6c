"""Whole experiments: commands, creating, opening, reading and closing them, and leftovers."""
