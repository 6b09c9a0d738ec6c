"""A Hive: a small batch service, a program of its own. Knows nothing of nni-manager, nor of the adapter to it."""
