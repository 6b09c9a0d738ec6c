"""Decides: the snapshot of one experiment becomes decisions. Pure: no await, no clock, no database, no network."""
