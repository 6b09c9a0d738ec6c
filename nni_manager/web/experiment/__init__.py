"""The parts of an experiment's pages: progress, notices, config, limits, logs."""
