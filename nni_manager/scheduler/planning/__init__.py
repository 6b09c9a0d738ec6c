"""Decides: one experiment's picture becomes decisions. Pure: no await, no clock, no input or output."""
