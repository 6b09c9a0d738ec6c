"""File faults, their times, and the daemon's actions, drawn from a seed before the run."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    """A target in the data directory or experiment. A *set* is a database with its log and shared memory."""

    INDEX = "index"
    INDEX_SET = "index set"
    IDENTITY = "identity"
    PLACE = "identity.place"
    DATABASE = "database"
    DATABASE_SET = "database set"
    WAL = "database log"
    SHM = "database shared memory"
    OUTBOX = "outbox"
    LOG = "log folder"
    KEEPER = "keeper folder"
    SETTINGS = "settings.yml"


class Kind(StrEnum):
    """Kind of fault. The first three are undone after a while, the others stay."""

    REMOVE = "remove"
    RENAME = "rename"
    READ_ONLY = "read-only"
    TRUNCATE = "truncate"
    EMPTY = "empty"
    RESTORE = "restore"

    @property
    def is_mended(self) -> bool:
        return self in (Kind.REMOVE, Kind.RENAME, Kind.READ_ONLY)


class Restart(StrEnum):
    """Action of the daemon in a step."""

    NONE = "stays up"
    #: Ends before the fault, and starts during it.
    END_BEFORE = "SIGTERM before, start during"
    KILL_BEFORE = "kill -9 before, start during"
    #: Runs when the fault starts, ends, and starts during it.
    END_DURING = "SIGTERM and start during"
    KILL_DURING = "kill -9 and start during"
    #: Is down when the file is restored.
    DOWN_OVER = "kill -9 before, start after"
    KILL_OVER = "kill -9 during, start after"


_STARTS_DURING = (Restart.END_BEFORE, Restart.KILL_BEFORE, Restart.END_DURING, Restart.KILL_DURING)
_FOLDERS = (Target.LOG, Target.KEEPER)
_DATABASES = (Target.INDEX, Target.INDEX_SET, Target.DATABASE, Target.DATABASE_SET, Target.WAL, Target.SHM)
#: A partly restored database would be a mixture of two versions, not an older copy.
_WHOLE = (Target.INDEX_SET, Target.DATABASE_SET)


@dataclass(frozen=True, slots=True)
class FileFault:
    target: Target
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds from the last step to the copy, from the copy to the fault, and of the fault."""

    before_s: float
    copied_s: float
    lasts_s: float
    faults: tuple[FileFault, ...]
    restart: Restart

    def __str__(self) -> str:
        what = " and ".join(map(str, self.faults))
        return (
            f"after {self.before_s:.2f} s: copy; after {self.copied_s:.2f} s more: {what} for {self.lasts_s:.2f} s;"
            f" the daemon: {self.restart}"
        )


def schedule(seed: int) -> list[Step]:
    draw = random.Random(f"files {seed}")
    return [_step(draw) for _ in range(draw.choice((1, 1, 2)))]


def is_strict(steps: list[Step]) -> bool:
    """Whether every file is restored unchanged, so that no acknowledged result may be missing.

    A write-ahead log that was missing at a start does not count as restored: SQLite has created a new one.
    """
    return all(
        fault.kind.is_mended and not _is_replaced(fault, step.restart) for step in steps for fault in step.faults
    )


def _is_replaced(fault: FileFault, restart: Restart) -> bool:
    return fault.target is Target.WAL and fault.kind is not Kind.READ_ONLY and restart in _STARTS_DURING


def _step(draw: random.Random) -> Step:
    targets = draw.sample(list(Target), draw.choice((1, 1, 2)))
    if len({target.value.split(" ")[0] for target in targets}) < len(targets):  # parts of one database
        targets = targets[:1]
    faults = [FileFault(target, draw.choice(_kinds(target))) for target in targets]
    faults.sort(key=lambda fault: fault.kind is Kind.READ_ONLY)  # last: it would keep the harness from the others
    return Step(
        before_s=draw.uniform(0.1, 0.5),
        copied_s=draw.uniform(0.1, 0.5),
        lasts_s=draw.uniform(0.1, 0.8),
        faults=tuple(faults),
        restart=draw.choice(list(Restart)),
    )


def _kinds(target: Target) -> list[Kind]:
    kinds = list(Kind)
    if target in _FOLDERS:
        kinds.remove(Kind.TRUNCATE)
    if target in _DATABASES and target not in _WHOLE:
        kinds.remove(Kind.RESTORE)
    return kinds
