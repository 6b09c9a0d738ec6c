"""The composition root: builds everything, owns signals and sockets, and the order of start and shutdown."""
