"""Validating webhooks that were asked for: each denies every new object of a kind."""

from __future__ import annotations

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import Kind


class Webhooks:
    """As a server tells of their denials, with the code that most of them give: 403."""

    def __init__(self) -> None:
        #: Kind → the webhook's name and what it says.
        self._denials: dict[str, tuple[str, str]] = {}

    def deny(self, kind: Kind, name: str, message: str) -> None:
        self._denials[kind.key] = (name, message)

    def clear(self) -> None:
        self._denials.clear()

    def require_admitted(self, kind: Kind) -> None:
        """For a new object."""
        if (found := self._denials.get(kind.key)) is not None:
            name, message = found
            told = f'admission webhook "{name}" denied the request'
            raise refusals.Refused(403, "Forbidden", f"{told}: {message}" if message else f"{told} without explanation")
