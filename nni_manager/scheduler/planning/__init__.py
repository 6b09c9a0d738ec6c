"""Turns the snapshot of one experiment into decisions. Pure: no await, clock, database or network."""
