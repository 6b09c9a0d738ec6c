"""The runner of a container: runs one command from start to end, and delivers everything about it."""
