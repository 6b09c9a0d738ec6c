"""Tuners propose parameters. One algorithm per file.

They run in a separate process, one per experiment, where nothing else waits for them.
"""
