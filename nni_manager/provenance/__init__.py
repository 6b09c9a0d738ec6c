"""The facts to repeat an experiment: the state of its code, the Python of its caller, the machine."""
