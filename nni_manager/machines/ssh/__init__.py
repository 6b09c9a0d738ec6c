"""Logging in to a machine over SSH: keys, login, transport, and the first program there (bootstrap)."""
