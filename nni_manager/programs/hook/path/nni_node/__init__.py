"""Shadows NNI's package of this name: its launchers start the program `node` next to this file."""
