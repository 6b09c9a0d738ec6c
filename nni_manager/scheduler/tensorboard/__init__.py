"""TensorBoard for trials of an experiment: a program of the user's, one process for each request."""
