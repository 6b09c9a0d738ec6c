"""The form of answers: tables and lists of facts for people, JSON for programs. Only `echo…` and `warn` print."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import click

#: Line breaks, tabs, and what else would move a terminal's cursor.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def echo(text: str) -> None:
    """On a terminal each line is cut to its width."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in text.splitlines():
        click.echo(line if columns is None else cut(line, columns))


def echo_json(answer: object) -> None:
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def warn(messages: Iterable[str]) -> None:
    """Each on a line of stderr: what refuses nothing spoils no output that a program reads."""
    for message in messages:
        click.echo(f"warning: {_flat(message)}", err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; a cell never breaks its line."""
    lines = [tuple(headers), *(tuple(map(_flat, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def facts(pairs: Mapping[str, str]) -> str:
    """One line for each name that has a value."""
    shown = {name: _flat(value) for name, value in pairs.items() if value}
    width = max(map(len, shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def cut(line: str, columns: int) -> str:
    """`line` in at most `columns` characters."""
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"


def number(value: object) -> str:
    """A result as people read it; empty when there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else compact(value)
    return str(value) if isinstance(value, int) or not math.isfinite(value) else f"{value:.6g}"


def direction(optimize_mode: str | None) -> str:
    """`` (highest)`` or `` (lowest)``: what "best" means; empty when nobody says."""
    return {"maximize": " (highest)", "minimize": " (lowest)"}.get(optimize_mode or "", "")


def compact(value: object) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def moment(ms: int | None) -> str:
    """Milliseconds since the epoch in local time; empty for None."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """``0:00:07``, ``3 d 04:10:00``."""
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02}:{minute:02}:{second:02}" if days else f"{hour}:{minute:02}:{second:02}"


def _flat(cell: str) -> str:
    """On one line, and otherwise as it is."""
    return " ".join(filter(None, _CONTROLS.split(cell)))
