"""The list of trials as a table: a column for each parameter, and why a trial waits or failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nni_manager.cli.output import table
from nni_manager.cli.output.table import Column, Row
from nni_manager.cli.output.values import flat
from nni_manager.client.formats import compact, duration, number
from nni_manager.domain.trial import TrialStatus, reason_in_words

Trial = Mapping[str, Any]

_FIRST = (
    Column(header="NO"),
    Column(header="ID"),
    Column(header="STATUS", is_status=True),
    Column(header="RESULT"),
    Column(header="TIME"),
)
_LAST = (Column(header="WHERE", least=12, dispensable=2), Column(header="WHY", is_note=True))
#: Header of parameters that are not a JSON object.
_NAMELESS = "PARAMETERS"
#: Digits of numbers among the parameters: normally, and where room is short.
_DIGITS, _FEW_DIGITS = 6, 4
#: Smallest widths, in characters, to which words and headers are cut; numbers are never cut.
_LEAST_WORD, _LEAST_HEADER = 8, 5


def text(trials: Sequence[Trial], width: int | None) -> str:
    """The list of trials as text. `width`: of the terminal, in characters; None: no terminal."""
    columns, rows = _of(trials, _DIGITS)
    if width is not None and table.natural_width(columns, rows) > width:
        columns, rows = _of(trials, _FEW_DIGITS, with_place=len({row[-2] for row in rows}) > 1)
    made = table.layout(columns, rows, width)
    hidden = [header for header in made.left_out if header != "WHERE"]
    more = f"\n… and {', '.join(hidden)}: a wider terminal shows more, --json shows all" if hidden else ""
    return made.text + more


def result(trial: Trial) -> str:
    """The final result of a trial; while it runs, its last intermediate result.

    A final result that is not a number, such as a list, is shown as it was reported.
    """
    value = trial["finalValue"]
    if value is None and trial["lastValue"] is not None and not TrialStatus(trial["status"]).is_final:
        return f"{number(trial['lastValue'])} so far"
    return number(value) if value is not None else str(trial["finalResult"] or "")


def time_taken(trial: Trial) -> str:
    """The time that a trial took, or has run so far; empty before it starts."""
    started, ended = trial["startedMs"], trial["endedMs"]
    if started is None:
        return ""
    return duration((ended if ended is not None else time.time() * 1000) / 1000 - started / 1000)


def why(trial: Trial) -> str:
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    return reason_in_words(trial["reason"], trial["message"], trial["lastWords"])


def _of(trials: Sequence[Trial], digits: int, *, with_place: bool = True) -> tuple[list[Column], list[Row]]:
    """The columns and rows of the list. Without `with_place` the place column is empty: all trials have the same."""
    shown = [dict(_cells(trial["parameters"], digits)) for trial in trials]
    names = list(dict.fromkeys(name for cells in shown for name in cells))
    columns = [*_FIRST, *(_column(name, [cells.get(name, "") for cells in shown]) for name in names), *_LAST]
    return columns, [_row(trial, cells, names, with_place) for trial, cells in zip(trials, shown, strict=True)]


def _row(trial: Trial, cells: Mapping[str, str], names: Sequence[str], with_place: bool) -> Row:
    place = (trial["place"] or trial["service"] or "") if with_place else ""
    return (
        str(trial["sequenceId"]),
        trial["id"],
        trial["status"],
        result(trial),
        time_taken(trial),
        *(cells.get(name, "") for name in names),
        place,
        why(trial),
    )


def _cells(parameters: object, digits: int, place: str = "") -> Iterator[tuple[str, str]]:
    """(header, text) of each parameter of a trial; a nested choice gives its name, then its own parameters."""
    if not isinstance(parameters, Mapping):
        yield _NAMELESS, compact(parameters)
        return
    for name, value in parameters.items():
        header = flat(place if name == "_name" and place else f"{place}.{name}" if place else str(name))
        if isinstance(value, Mapping) and "_name" in value:
            yield from _cells(value, digits, header)
        else:
            yield header, value if isinstance(value, str) else number(value, digits) or compact(value)


def _column(name: str, cells: Sequence[str]) -> Column:
    widest = max(map(len, cells), default=0)
    least = widest if _are_numbers(cells) else min(widest, _LEAST_WORD)
    return Column(header=name, least=min(max(least, _LEAST_HEADER), max(widest, len(name))), dispensable=1)


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(cell == "" or cell[-1].isdigit() for cell in cells)
