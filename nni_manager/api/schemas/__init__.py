"""Models of the REST API's bodies: camelCase, times in milliseconds since the epoch. Imports: pydantic and domain.

SQLite builds large answers without these models; a test compares the two.
"""
