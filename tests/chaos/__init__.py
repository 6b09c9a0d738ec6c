"""Many trials on three machines of their own while power, links, servers, keepers and the daemon break at random times,
and what has become of each trial. ``python -m tests.chaos --trials 1600`` is the whole; `make machines` has a part."""
