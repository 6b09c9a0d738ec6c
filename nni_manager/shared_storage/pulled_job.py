"""What is known of a job whose runner's folder is read: its container, its end, and when to read next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds between two reads of a folder while its files change.
SHORTEST_WAIT_S = 0.5


@dataclass(slots=True, kw_only=True)
class PulledJob:
    """The reading of one job's folder. Times are by the loop's clock."""

    job_name: str
    folder: Path
    #: The folder for copies of its logs.
    logs: Path
    next_at: float
    wait_s: float = SHORTEST_WAIT_S
    #: Number of stored bytes of each outbox; None: not queried yet.
    offsets: dict[str, int] | None = None
    is_registered: bool = False
    #: Id of the container that registered last; empty: it has none.
    container: str = ""
    #: Ids of containers that it has followed.
    earlier: set[str] = field(default_factory=set)
    #: Id of the container that may end the job, if the adapter knows it; others belong to earlier runs.
    run: str = ""
    #: Time until which results of an earlier container are waited for; None: they are not.
    earlier_until: float | None = None
    #: Time when its runner's report of the end was first seen.
    end_seen_at: float | None = None
    #: Whether that report was passed on.
    is_end_reported: bool = False
    #: The platform reports that the job has ended, so its end does not wait for the rest.
    give_up_at: float | None = None
    has_given_up: bool = False
    #: Time until which zeros at a log's offset are waited for; None: there are none.
    hole_until: float | None = None
    #: Reading has ended, unless another container registers.
    is_over: bool = False
    #: Its runner's version was refused: no container of it is read.
    is_refused: bool = False
    trouble: str = ""

    def reopen(self) -> None:
        """Forgets the end of an earlier container."""
        self.end_seen_at = self.give_up_at = None
        self.is_end_reported = self.is_over = self.has_given_up = False
        self.hurry()

    def hurry(self) -> None:
        """Makes it due now, and again soon."""
        self.next_at, self.wait_s = asyncio.get_running_loop().time(), SHORTEST_WAIT_S

    def is_followed_by(self, container: str) -> bool:
        """Whether this container, which has registered, is a later one than the one that is read."""
        return not self.is_registered or (container != self.container and container not in self.earlier)
