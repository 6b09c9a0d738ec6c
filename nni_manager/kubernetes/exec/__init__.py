"""Results read from a running container by `exec`, and the choice of the channel."""
