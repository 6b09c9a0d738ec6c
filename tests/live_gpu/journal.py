"""Notes of trials about the cards that they held: which trials shared a card."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Stay:
    """One process on its visible cards. `until_s` infinite: it never noted its end."""

    trial: str
    pid: int
    cards: tuple[str, ...]
    visible: str | None
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Journal:
    """The file that all trials of a test append to."""

    path: Path

    def stays(self) -> list[Stay]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        entries = [json.loads(line) for line in lines]
        left = {(e["pid"], e["trial"]): e["at_s"] for e in entries if e["event"] == "leaves"}
        return [_stay(entry, left) for entry in entries if entry["event"] == "holds"]

    def most_on_a_card(self) -> dict[str, int]:
        """Card → maximum number of processes that held memory on it at the same time."""
        return {card: max(self._counts(card)) for card in {card for stay in self.stays() for card in stay.cards}}

    def _counts(self, card: str) -> Iterator[int]:
        stays = [stay for stay in self.stays() if card in stay.cards]
        for stay in stays:
            yield sum(other.from_s <= stay.from_s < other.until_s for other in stays)


def _stay(entry: dict[str, Any], left: dict[tuple[int, str], float]) -> Stay:
    until_s = left.get((entry["pid"], entry["trial"]), math.inf)
    cards = tuple(entry["cards"])
    return Stay(entry["trial"], entry["pid"], cards, entry["visible"], entry["at_s"], until_s)
