"""Experiments as a whole: commands about them, how they are made, opened, closed, read and left."""
