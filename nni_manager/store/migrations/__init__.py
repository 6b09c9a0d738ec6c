"""Numbered SQL files, one folder per kind of database. Files that were applied to databases in use are never edited."""
