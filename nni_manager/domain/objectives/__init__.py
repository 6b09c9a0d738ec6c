"""Several objectives and constraints: what results are worth, and which of them are best."""
