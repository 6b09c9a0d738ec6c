"""What commands print: facts, tables that fit the terminal, JSON for programs; colours, confirmations.

Without a terminal, output has no colours, and every column is as wide as its widest cell.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from nni_manager.client.formats import cut
from nni_manager.domain.text import UNPRINTABLE, printable

#: Line breaks, tabs and other characters that move a terminal's cursor.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_COMMAND = re.compile(r"`[^`]+`")


#: The codes of `click.style` in our own text.
_STYLE = re.compile(r"(\x1b\[(?:0|1|31|32|33|36)m)")


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print untrusted text: characters that control a terminal are replaced."""
    click.echo(shown(str(text)), err=err, nl=nl)


def shown(text: str) -> str:
    """The text as by `domain.text.printable`, but with our own colours."""
    if not _has_colours():
        return printable(text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(_STYLE.split(text)))


def echo_json(answer: object) -> None:
    """Print JSON; characters that `printable` removes are escaped."""
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    click.echo(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def warn(messages: Iterable[str]) -> None:
    """Print each message on a line of stderr, so that programs can parse stdout."""
    for message in messages:
        echo(f"warning: {flat(message)}", err=True)


def facts(pairs: Mapping[str, str], columns: int | None = None) -> str:
    """Names and values as text, one line for each name that has a value.

    With `columns`, values are wrapped. Words, such as paths, stay whole so that they can be copied.
    """
    shown = {name: flat(value) for name, value in pairs.items() if value}
    width = max(map(len, shown), default=0) + 2
    return "\n".join(
        f"{name.ljust(width)}{_look(name)(line)}" if number == 0 else f"{'':{width}}{line}"
        for name, value in shown.items()
        for number, line in enumerate([value] if columns is None else wrapped(value, columns - width))
    )


def _look(name: str) -> Callable[[str], str]:
    return coloured_status if name == "status" else str


def wrapped(text: str, columns: int, *, indent: str = "", most: int | None = None) -> list[str]:
    """The text in lines of `columns` characters (at least 20), at most `most` lines.

    Words, and commands in backticks, stay whole so that they can be copied.
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


def flat(cell: str) -> str:
    """The text on one line: each line break, tab or run of other control characters becomes a blank."""
    return " ".join(filter(None, _CONTROLS.split(cell)))


#: Status → colour; others have the default colour.
_COLOURS = {
    "SUCCEEDED": "green",
    "DONE": "green",
    "DONE (closed)": "green",
    "RUNNING": "cyan",
    "FAILED": "red",
    "SYS_CANCELED": "red",
    "ERROR": "red",
    "ON HOLD": "red",
    "UNKNOWN": "yellow",
    "EARLY_STOPPED": "yellow",
    "STOPPING": "yellow",
}


def terminal_width() -> int | None:
    """The terminal's width in columns; None: no terminal, so nothing is cut, wrapped or omitted."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured_status(text: str) -> str:
    """A status in its colour. `text`: the status, possibly padded, or followed by a colon and a sentence."""
    colour = _COLOURS.get(text.partition(":")[0].strip())
    return coloured(text, colour) if colour else text


def coloured(text: str, colour: str) -> str:
    return click.style(text, fg=colour) if _has_colours() else text


def heading(text: str) -> str:
    return click.style(text, bold=True) if text and _has_colours() else text


def _has_colours() -> bool:
    """Whether output has colours; any value of the variable NO_COLOR disables them (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def confirmed(question: str) -> bool:
    """Whether the user answers yes; False without a terminal or input."""
    try:
        return click.confirm(printable(question))
    except click.Abort:
        click.echo()
        return False


_GAP = "  "
#: Indent of a note below its row.
_INDENT = "    "

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. `is_note`: the last column, of sentences; without room, notes go below their rows."""

    header: str
    #: Smallest width, in characters; None: the width of its widest cell.
    least: int | None = None
    #: In a narrow terminal, the column with the greatest value is omitted first; 0: never.
    dispensable: int = 0
    #: Maximum number of lines of a note below its row.
    note_lines: int = 2
    is_note: bool = False
    is_status: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as text. `left_out`: headers of columns that did not fit."""

    text: str
    left_out: tuple[str, ...] = ()


def plain_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The table as text, at its natural width."""
    return layout([Column(header=header) for header in headers], rows, None).text


def layout(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None) -> Table:
    """The table in `width` characters if possible; None: at its natural width. Each row is one line."""
    cells = [tuple(map(flat, row)) for row in rows]
    if width is None:
        return Table(text=_lines(columns, cells, _natural(columns, cells)))
    columns, cells = _without(columns, cells, [index for index, _ in enumerate(columns) if _is_empty(index, cells)])
    columns, cells, notes = _notes_apart(columns, cells, width)
    left_out: list[str] = []
    while (widths := _fitted(columns, _natural(columns, cells), width)) is None:
        index = max(range(len(columns)), key=lambda index: (columns[index].dispensable, index))
        left_out.insert(0, columns[index].header)
        columns, cells = _without(columns, cells, [index])
    return Table(text=_lines(columns, cells, widths, notes), left_out=tuple(left_out))


def natural_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """The width of the table without its notes and without cutting."""
    beside = [index for index, column in enumerate(columns) if not column.is_note and not _is_empty(index, rows)]
    widths = _natural(columns, rows)
    return _total([widths[index] for index in beside])


def _is_empty(index: int, rows: Sequence[Sequence[str]]) -> bool:
    return not any(row[index] for row in rows)


def _without(columns: Sequence[Column], cells: list[Row], gone: Sequence[int]) -> tuple[list[Column], list[Row]]:
    kept = [index for index, _ in enumerate(columns) if index not in gone]
    return [columns[index] for index in kept], [tuple(row[index] for index in kept) for row in cells]


def _notes_apart(
    columns: Sequence[Column], cells: list[Row], width: int
) -> tuple[Sequence[Column], list[Row], list[list[str]]]:
    """(columns, rows, lines below each row); the notes go below their rows if some do not fit next to them."""
    if not columns or not columns[-1].is_note or _total(_natural(columns, cells)) <= width:
        return columns, cells, [[] for _ in cells]
    most = columns[-1].note_lines
    notes = [wrapped(row[-1], width, indent=_INDENT, most=most) for row in cells]
    return *_without(columns, cells, [len(columns) - 1]), notes


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([len(column.header), *(len(row[index]) for row in rows)], default=0) for index, column in enumerate(columns)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * max(len(widths) - 1, 0)


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int] | None:
    """The widths at which the columns fit, the widest narrowed first; None if a column must be omitted."""
    spare = [0 if column.least is None else found - column.least for column, found in zip(columns, widths, strict=True)]
    while _total(widths) > width:
        index = max((index for index, more in enumerate(spare) if more > 0), key=widths.__getitem__, default=None)
        if index is None:
            return widths if not any(column.dispensable for column in columns) else None
        widths[index] -= 1
        spare[index] -= 1
    return widths


def _lines(
    columns: Sequence[Column], cells: Sequence[Row], widths: Sequence[int], notes: Sequence[Sequence[str]] = ()
) -> str:
    lines = [_line([column.header for column in columns], widths, [heading] * len(columns))]
    looks = [coloured_status if column.is_status else str for column in columns]
    for number, row in enumerate(cells):
        lines.append(_line(row, widths, looks))
        lines += notes[number] if notes else ()
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int], looks: Sequence[Callable[[str], str]]) -> str:
    """The line of a row, which ends with its last non-empty cell."""
    last = max((index for index, cell in enumerate(row) if cell), default=0)
    cells = [
        look(cut(cell, width) if index == last else cut(cell, width).ljust(width))
        for index, (cell, width, look) in enumerate(zip(row, widths, looks, strict=True))
        if index <= last
    ]
    return _GAP.join(cells)
