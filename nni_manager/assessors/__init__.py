"""Assessors: what stops bad trials early. One algorithm per file; imports `domain` only.

They run in the tuner's process.
"""
