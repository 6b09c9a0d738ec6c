"""The version rule of trial runners, keepers and `nnictl`: the first two numbers must equal the daemon's."""

from __future__ import annotations

import re

#: A version that is longer is none.
MOST_CHARACTERS = 64


def is_legible(version: str) -> bool:
    """Whether the version can be displayed; trial runners are untrusted."""
    return len(version) <= MOST_CHARACTERS and version.isprintable()


def fits(manager: str, other: str) -> bool:
    """Whether a manager's version accepts another one: 0.6.1 accepts 0.6 and 0.6.2, not 0.5.1 or 0.7."""
    return _first_two(other) is not None and _first_two(other) == _first_two(manager)


def refusal(manager: str, runner: str | None) -> str:
    """A message that names both versions, or empty if they are compatible."""
    if not runner:
        return f"the trial runner names no version, this manager is {manager}: use the runner that comes with it"
    if fits(manager, runner):
        return ""
    return (
        f"the trial runner is version {runner}, this manager is {manager}: their first two numbers must be equal;"
        " use the runner that comes with this manager, or set versionCheck: false"
    )


def _first_two(version: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})(?:\D|$)", version.strip())
    return (int(found[1]), int(found[2])) if found else None
