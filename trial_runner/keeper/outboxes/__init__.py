"""Data that jobs write for the manager, followed as it grows."""
