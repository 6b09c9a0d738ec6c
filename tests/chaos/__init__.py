"""Random faults of power, links, servers, keepers and daemon while many trials run on three simulated machines.

The outcome of each trial is checked. ``python -m tests.chaos --trials 1600`` is a full run, `make machines` a sample.
"""
