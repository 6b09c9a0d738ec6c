"""Answers about the trials of an experiment for pages and charts: filtered, sorted, summarised.

One child process computes all of them, so that the daemon neither imports numpy nor computes. `service` and `query` run
in the daemon; `worker` and the modules that it imports run in the child.
"""
