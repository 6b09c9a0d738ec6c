"""The keeper's process: its socket, its connections, and its verbs."""
