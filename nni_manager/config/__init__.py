"""Configuration: an experiment file's text becomes an `ExperimentSpec`; the daemon's own settings are read.

Start at `experiment_file`. May import `domain`, `platform_kit`, `tuners` and `assessors`; platforms are found through
`platform_kit.registry`, when a config names one.
"""
