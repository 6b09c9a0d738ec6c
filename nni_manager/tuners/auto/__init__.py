"""Auto: a tuner that chooses how it searches. Start at `tuner`; all but that and `start` needs numpy."""
