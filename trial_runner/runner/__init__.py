"""The runner of a container: one command from its start to its end, and everything about it delivered."""
