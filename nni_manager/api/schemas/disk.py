"""Disks as the API shows them."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.daemon import Wire


class DiskUse(Wire):
    """The room that an experiment takes on the manager's machine, in bytes as `du` counts them."""

    total: int = Field(description="All of it.")
    database: int = Field(description="Its database, with what belongs to that.")
    trials: int = Field(description="What trials wrote, outboxes and logs among it.")
    checkpoints: int = Field(description="Checkpoints of its tuner.")
    code: int = Field(description="Copies and archives of its code.")
    logs: int = Field(description="Its own logs.")
    other: int = Field(description="What else is in its folder.")
    files: int = Field(description="How many files there are.")


class Disk(Wire):
    """The disk of the data directory."""

    folder: str = Field(description="The data directory.")
    free: int = Field(description="Bytes that are free for the manager's user.")
    total: int = Field(description="Bytes that the disk has.")
    least: int = Field(description="Free bytes below which the manager warns; 0: it does not.")
    warning: str = Field(description="What is wrong and what to do; empty: there is room.")
