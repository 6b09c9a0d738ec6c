"""The command line: `nnictl` for experiments, `nni-manager` for the daemon. Start at `main`.

A client of the API; `app` is imported only to serve. What is heavy is imported inside the command that needs it.
"""
