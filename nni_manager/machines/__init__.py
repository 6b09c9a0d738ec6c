"""Machines that run jobs: places, keepers, logins.

`ledger` knows which job has which GPU of a machine, `waiting_queue` which experiment is next; `placement` chooses, and
says why a job waits; `gpu_machines` says how an adapter uses them. `keeper` starts jobs through the keeper of a machine
(`keeper.jobs` is what adapters use), `ssh` logs in to one.
"""
