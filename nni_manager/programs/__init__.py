"""Experiments from Python programs: `Experiment`, `optimize`. The command line uses the parts of it, too.

Imports: client (reaching a daemon), config (reading what is sent elsewhere), code_archive.
"""
