"""Where state lives: one SQLite database per experiment folder, and an index of all folders.

`database` runs functions on a writer thread; `experiments`, `trials`, `jobs`, `metrics` and `history` are those
functions: they take a connection and speak domain records. Imports: domain.
"""
