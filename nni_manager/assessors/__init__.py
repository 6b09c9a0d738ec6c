"""Assessors stop bad trials early. One algorithm per file.

They run in the tuner's process.
"""
