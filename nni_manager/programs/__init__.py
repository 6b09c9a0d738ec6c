"""Experiments from Python programs: `Experiment`, `optimize`. The command line uses its parts, too."""
