"""Stands before NNI's package of this name: its launchers start the program `node` beside this file."""
