"""Machines that run jobs: places, keepers, logins.

`ledger` records which job has which GPU of a machine; `waiting_queue` orders the waiting experiments; `placement`
chooses places and explains why a job waits; `gpu_machines` is the interface for adapters. `keeper` starts jobs through
a machine's keeper (adapters use `keeper.jobs`); `ssh` logs in to a machine.
"""
