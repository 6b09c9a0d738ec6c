"""Help of every command."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import Result

from nni_manager.cli import main

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


def test_no_line_of_a_list_is_cut_off_at_80_columns() -> None:
    lists = [text for program in (main.nnictl, main.nni_manager) for text in _lists(program)]
    assert len(lists) > 20
    long = [line.strip() for text in lists for line in text.splitlines()[1:] if line.endswith("...")]
    assert long == []


def _lists(group: click.Group) -> Iterator[str]:
    """The list of commands in the help of a group and of each group in it, as a terminal of 80 columns shows it."""
    with click.Context(group, terminal_width=80) as context:
        yield group.get_help(context).partition("Commands:")[2]
        inner = [group.get_command(context, name) for name in group.list_commands(context)]
    for command in inner:
        if isinstance(command, click.Group):
            yield from _lists(command)
