"""Models of the REST API's bodies: camelCase, times in milliseconds since the epoch.

SQLite builds large answers without these models; a test compares both.
"""
