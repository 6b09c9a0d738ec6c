"""Numbered SQL files, one folder per kind of database. A released file is never edited."""
