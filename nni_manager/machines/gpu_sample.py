"""A keeper's reading of its machine's GPUs: the cards, and foreign processes on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_GIB = 2**30
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A process that computes on a card and belongs to no job of this keeper."""

    pid: int
    #: The process's user; empty: hidden from the keeper, for example in a container.
    user: str
    #: None: unknown.
    memory_bytes: int | None

    def __str__(self) -> str:
        """The process as text: ``pid 4242 of user x, 11 GiB``."""
        user = f" of user {self.user}" if self.user else ""
        return f"pid {self.pid}{user}" + (f", {in_words(self.memory_bytes)}" if self.memory_bytes else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU of a machine, with what its processes use."""

    index: int
    #: The driver's id of the card; empty: unknown, so machine and index identify it.
    uuid: str = ""
    name: str = ""
    #: None: unknown.
    memory_bytes: int | None = None
    #: Memory used by other processes than our jobs.
    foreign_bytes: int = 0
    foreign: tuple[Foreign, ...] = ()
    #: Job → bytes that it uses.
    used_by_job: Mapping[str, int] = field(default_factory=dict)
    #: Why the card is not usable, in the driver's words; empty: it is.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """All GPUs of a machine at one moment."""

    cards: tuple[Card, ...]
    #: Source of the reading: nvml or nvidia-smi.
    source: str = ""
    #: Why reading failed; empty: it succeeded.
    error: str = ""
    #: The machine has no driver, so waiting is useless.
    is_absent: bool = False

    @classmethod
    def parse(cls, answer: Mapping[str, Any]) -> GpuSample:
        """The reading that a keeper sent, by the wire contract."""
        cards = tuple(_card(entry) for entry in answer.get("cards", ()))
        source, error = str(answer.get("source", "")), str(answer.get("error", ""))
        return cls(cards=cards, source=source, error=error, is_absent=bool(answer.get("is_absent")))


def in_words(size: int) -> str:
    """A number of bytes as text: ``11 GiB``, ``1.5 GiB``, ``512 MiB``."""
    if size < _GIB:
        return f"{round(size / _MIB)} MiB"
    return f"{size / _GIB:.1f}".removesuffix(".0") + " GiB"


def _card(answer: Mapping[str, Any]) -> Card:
    processes = answer["processes"]
    ours = {p["job"]: 0 for p in processes if p["job"] is not None}
    for process in processes:
        if process["job"] is not None:
            ours[process["job"]] += process["memory_bytes"] or 0
    return Card(
        index=answer["index"],
        uuid=answer["uuid"],
        name=answer["name"],
        memory_bytes=answer["memory_bytes"],
        foreign_bytes=max(0, (answer["used_bytes"] or 0) - sum(ours.values())),
        foreign=tuple(
            Foreign(pid=process["pid"], user=process["user"], memory_bytes=process["memory_bytes"])
            for process in processes
            if process["is_compute"] and process["job"] is None
        ),
        used_by_job=ours,
        error=answer["error"],
    )
