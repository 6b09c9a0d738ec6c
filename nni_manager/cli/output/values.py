"""Formats output: lists of facts for people (tables: `table`), JSON for programs. `echo_json` and `warn` print."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import click

from nni_manager.cli.output import terminal

#: Line breaks, tabs and other characters that move a terminal's cursor.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_COMMAND = re.compile(r"`[^`]+`")


def echo_json(answer: object) -> None:
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def warn(messages: Iterable[str]) -> None:
    """Prints each message on a line of stderr: a warning must not spoil output that a program reads."""
    for message in messages:
        click.echo(f"warning: {flat(message)}", err=True)


def facts(pairs: Mapping[str, str], columns: int | None = None) -> str:
    """Names and values as text, one line for each name that has a value.

    With `columns`, a value is wrapped. A word, such as a path, stays in one piece so that it can be copied.
    """
    shown = {name: flat(value) for name, value in pairs.items() if value}
    width = max(map(len, shown), default=0) + 2
    return "\n".join(
        f"{name.ljust(width)}{_look(name)(line)}" if number == 0 else f"{'':{width}}{line}"
        for name, value in shown.items()
        for number, line in enumerate([value] if columns is None else wrapped(value, columns - width))
    )


def _look(name: str) -> Callable[[str], str]:
    return terminal.coloured_status if name == "status" else str


def wrapped(text: str, columns: int, *, indent: str = "", most: int | None = None) -> list[str]:
    """The text in lines of `columns` characters (20 at least), at most `most` lines.

    A word or a command in backticks stays in one piece, so that it can be copied.
    """
    wrap = textwrap.TextWrapper(
        width=max(columns, 20),
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" …",
        break_long_words=False,
        break_on_hyphens=False,
    )
    in_one_piece = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    return [line.replace("\0", " ") for line in wrap.wrap(in_one_piece)]


def cut(line: str, columns: int) -> str:
    """`line` in at most `columns` characters."""
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"


def number(value: object, digits: int = 6) -> str:
    """A result as people read it; empty when there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else compact(value)
    return str(value) if isinstance(value, int) or not math.isfinite(value) else f"{value:.{digits}g}"


def direction(optimize_mode: str | None) -> str:
    """The meaning of "best", `` (highest)`` or `` (lowest)``; empty: unknown."""
    return {"maximize": " (highest)", "minimize": " (lowest)"}.get(optimize_mode or "", "")


def objectives(state: Mapping[str, Any]) -> str:
    """The objectives of an experiment's state in words, such as ``accuracy (highest), latency (lowest)``."""
    return ", ".join(f"{name}{direction(mode)}" for name, mode in (state.get("objectives") or {}).items())


def compact(value: object) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def moment(ms: int | None) -> str:
    """A moment, given in milliseconds since the epoch, in local time with its zone; empty for None."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def duration(seconds: float) -> str:
    """A duration as people read it, such as ``0:00:07`` or ``3 d 04:10:00``."""
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02}:{minute:02}:{second:02}" if days else f"{hour}:{minute:02}:{second:02}"


def flat(cell: str) -> str:
    """The text on one line: each line break, tab or run of other control characters becomes a blank."""
    return " ".join(filter(None, _CONTROLS.split(cell)))
