"""Tables that fit the terminal: columns are narrowed, then left out, and a long note goes below its row.

Without a terminal every column is shown, as wide as its widest cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nni_manager.cli.output import terminal
from nni_manager.cli.output.values import flat, wrapped
from nni_manager.client.formats import cut

_GAP = "  "
#: Indent of a note below its row.
_INDENT = "    "

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. `is_note`: the last column, of sentences; without room a note goes below its row."""

    header: str
    #: Smallest width, in characters; None: the width of its widest cell.
    least: int | None = None
    #: Without room the column with the greatest value is left out first; 0: never.
    dispensable: int = 0
    #: The most lines of a note below its row.
    note_lines: int = 2
    is_note: bool = False
    is_status: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as text. `left_out`: headers of columns for which there was no room."""

    text: str
    left_out: tuple[str, ...] = ()


def plain(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The table as text, at its natural width."""
    return layout([Column(header=header) for header in headers], rows, None).text


def layout(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None) -> Table:
    """The table in `width` characters if possible; None: at its natural width. A cell never breaks its line."""
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
    """(columns, rows, lines below each row): the notes go below when not all of them fit beside their rows."""
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
    """The widths at which the columns fit, the widest narrowed first; None: a column must be left out."""
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
    lines = [_line([column.header for column in columns], widths, [terminal.heading] * len(columns))]
    looks = [terminal.coloured_status if column.is_status else str for column in columns]
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
