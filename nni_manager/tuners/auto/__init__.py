"""Auto: a tuner that chooses its method. Start reading at `tuner`; all modules except that and `start` need numpy."""
