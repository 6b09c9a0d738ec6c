"""Random faults of the files of a data directory during a local experiment, with restarts and kills of the daemon in
between, and a judge. ``python -m tests.chaos files --seeds 1-200`` runs all; `make test` and `make thorough` run
parts."""
