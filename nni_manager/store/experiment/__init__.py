"""The tables of one experiment's database."""
