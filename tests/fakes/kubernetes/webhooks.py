"""Validating webhooks on demand: each denies every new object of a kind."""

from __future__ import annotations

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import Kind


class Webhooks:
    """Denials have the server's message format and the usual code 403."""

    def __init__(self) -> None:
        #: Kind → the webhook's name and message.
        self._denials: dict[str, tuple[str, str]] = {}

    def deny(self, kind: Kind, name: str, message: str) -> None:
        self._denials[kind.key] = (name, message)

    def clear(self) -> None:
        self._denials.clear()

    def require_admitted(self, kind: Kind) -> None:
        """Check a new object."""
        if (found := self._denials.get(kind.key)) is not None:
            name, message = found
            told = f'admission webhook "{name}" denied the request'
            raise refusals.Refused(403, "Forbidden", f"{told}: {message}" if message else f"{told} without explanation")
