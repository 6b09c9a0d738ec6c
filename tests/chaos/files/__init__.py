"""Random file faults in a data directory during a local experiment, with daemon restarts and kills, and checks.

``python -m tests.chaos files --seeds 1-200`` runs all; `make test` and `make thorough` run parts.
"""
