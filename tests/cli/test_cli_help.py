"""Help of every command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

pytestmark = pytest.mark.unit


def test_every_command_has_help(nnictl: Callable[..., Result]) -> None:
    found = _commands(nnictl, [])
    assert len(found) > 30
    for words in found:
        shown = nnictl(*words, "--help")
        assert shown.exit_code == 0 and shown.stdout.startswith("Usage: nnictl"), words


def _commands(nnictl: Callable[..., Result], group: list[str]) -> list[list[str]]:
    """All of them, groups included, as the help lists them."""
    found = [group]
    lines = nnictl(*group, "--help").stdout.splitlines()
    if "Commands:" in lines:
        listed = lines[lines.index("Commands:") + 1 :]
        for name in [text.split()[0] for text in listed if text[:2] == "  " and text[2] != " "]:
            found += _commands(nnictl, [*group, name])
    return found
