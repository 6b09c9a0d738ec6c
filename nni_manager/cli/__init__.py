"""The command line: `nnictl` for experiments, `nni-manager` for the daemon. Start at `main`.

It is a client of the API; only `serve` imports `app`. Slow imports are inside the commands that need them.
"""
