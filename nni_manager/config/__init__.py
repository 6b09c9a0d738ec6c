"""Configuration: experiment files → `ExperimentSpec`, and the daemon's settings.

Start at `experiment_file`. `platform_kit.registry` finds the platforms that a config names.
"""
