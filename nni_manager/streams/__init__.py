"""Server-sent events, for the API and for the pages.

Imports: domain. A stream knows a subject by two methods: watch, and read.
"""
