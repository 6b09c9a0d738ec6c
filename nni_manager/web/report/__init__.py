"""The report of an experiment: one HTML file that opens without a network."""
