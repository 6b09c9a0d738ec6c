"""The command line: `nnictl` for experiments, `nni-manager` for the daemon. Start at `main`.

A client of the API: imports `client` and `domain`, `config` where a file is checked or a setting read, `app` only to
serve. What is heavy is imported inside the command that needs it.
"""
