"""Logging in to a machine over SSH, and what is put there first: keys, login, transport, bootstrap."""
