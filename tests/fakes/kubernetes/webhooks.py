"""Webhooks: those that deny every new object of a kind, on demand, and those that change new objects."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import Kind
from tests.fakes.kubernetes.store import Object


class Webhooks:
    """Denials have the server's message format and the usual code 403."""

    def __init__(self) -> None:
        #: Kind → the webhook's name and message.
        self._denials: dict[str, tuple[str, str]] = {}
        #: Mutating webhooks, which change new objects.
        self.mutators: list[Callable[[Kind, Object], Object]] = []

    def deny(self, kind: Kind, name: str, message: str) -> None:
        self._denials[kind.key] = (name, message)

    def clear(self) -> None:
        self._denials.clear()

    def mutated(self, kind: Kind, obj: Object) -> Object:
        """A new object as the mutating webhooks leave it."""
        for mutator in self.mutators:
            obj = mutator(kind, obj)
        return obj

    def require_admitted(self, kind: Kind) -> None:
        """Check a new object."""
        if (found := self._denials.get(kind.key)) is not None:
            name, message = found
            told = f'admission webhook "{name}" denied the request'
            raise refusals.Refused(403, "Forbidden", f"{told}: {message}" if message else f"{told} without explanation")
