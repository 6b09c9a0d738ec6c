"""Answers about the trials of an experiment for pages and charts: filtered, sorted, summarised.

All of it is computed in one child process, so that the daemon neither imports numpy nor computes. `service` and `query`
are the daemon's side; `worker` and the modules that it imports run in the child.
"""
