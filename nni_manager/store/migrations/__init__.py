"""Numbered SQL files, one folder per kind of database. One that databases in use have gone through is never edited."""
