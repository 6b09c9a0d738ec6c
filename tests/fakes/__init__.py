"""Fakes of external services: small HTTP servers that follow the vendors' contracts and fail on demand.

They share no code with the adapters. Each can be run on its own: ``python -m tests.fakes.dlc --help``.
"""
