"""Places of machines, and which experiment has which."""
