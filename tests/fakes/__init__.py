"""Stand-ins for services elsewhere: small real HTTP servers that hold the vendors' contracts and misbehave on demand.

They share no code with the adapters, and a person may run one: ``python -m tests.fakes.dlc --help``.
"""
