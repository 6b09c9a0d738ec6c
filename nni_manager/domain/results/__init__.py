"""Results: which can be compared, and which of them are better."""
