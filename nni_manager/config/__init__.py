"""Configuration: an experiment file's text becomes an `ExperimentSpec`; the daemon's own settings are read.

Start at `experiment_file`. Platforms are found through `platform_kit.registry`, when a config names one.
"""
