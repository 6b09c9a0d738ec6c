"""The process of an experiment's tuner and assessor: its pipes, its verbs, and users' classes in it.

Users' classes run in the user's Python, which may be as old as 3.7 and knows none of our packages: ``python3
…/tuner_host/__main__.py``. The manager's own algorithms run on the same frame in the manager's Python. Standard library
only.
"""
