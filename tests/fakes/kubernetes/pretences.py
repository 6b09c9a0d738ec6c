"""Simulated pods, and pods with forked runners, so that hundreds fit on a small machine."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.kubernetes import selectors
from tests.fakes.kubernetes.store import Object


@dataclass(frozen=True)
class Pretence:
    """Behaviour of all containers of pods with these labels."""

    selector: str
    seconds: float = 0.0
    exit_code: int = 0
    log: str = ""
    #: Whether their trial runners are forked, without an interpreter start each.
    forked: bool = False


class Pretences:
    """The active simulations; the first match applies."""

    def __init__(self) -> None:
        self._held: list[Pretence] = []

    def add(self, pretence: Pretence) -> None:
        self._held.append(pretence)

    def clear(self) -> None:
        self._held.clear()

    def of(self, pod: Object) -> Pretence | None:
        return next((each for each in self._held if selectors.labels(each.selector)(pod)), None)
