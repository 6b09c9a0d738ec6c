"""The keeper's process: its socket, its connections, and the verbs that it answers."""
