"""Models of the REST API's bodies: camelCase, times in milliseconds since the epoch. Imports: pydantic and domain's
words.

Big answers are built by SQLite and never pass through these models; a test holds the two together.
"""
