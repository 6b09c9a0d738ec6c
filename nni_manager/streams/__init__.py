"""Server-sent events, for the API and for the pages.

A stream knows a subject by two methods: watch, and read.
"""
