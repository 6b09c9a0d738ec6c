"""Everything an adapter may lean on: the contract, the registry, shared helpers.

May import `domain` and `trial_runner.protocol`; adapters are found at run time, never imported by name here.
"""
