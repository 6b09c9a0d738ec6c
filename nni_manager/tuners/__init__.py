"""Tuners: what proposes parameters. One algorithm per file.

They run in a process of their own, one per experiment, where nothing else waits for them.
"""
