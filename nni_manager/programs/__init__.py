"""Experiments from Python programs: `Experiment`, `optimize`. The command line uses the parts of it, too."""
