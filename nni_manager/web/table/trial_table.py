"""Rows of the table of trials, and of the comparison of trials.

The table shows the answer to the question ``trials``. The comparison has a line for each parameter and result; lines
that differ come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.analysis.flattened import flat, parsed
from nni_manager.domain.formats import duration
from nni_manager.domain.trial_status import OPEN_STATUSES
from nni_manager.web import formats
from nni_manager.web.table.page_query import PageQuery

#: Fixed columns: name → heading.
FIXED = {
    "number": "No.",
    "id": "Trial",
    "status": "Status",
    "result": "Result",
    "latest": "Latest",
    "duration": "Duration",
    "started": "Started",
    "ended": "Ended",
    "place": "Place",
}
_SHOWN = ("number", "id", "status", "result", "latest", "duration", "place")
#: Columns that cannot be hidden: they identify and open a row.
_NEEDED = ("number", "status")
_AT_THE_RIGHT = frozenset({"number", "result", "latest", "duration"})
#: Number of parameters with a column by default.
_MOST_PARAMETERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    #: Name in `sort` and `columns`.
    name: str
    title: str
    is_number: bool
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    text: str = ""
    #: The full value, if the text is shortened.
    title: str = ""


def build(query: PageQuery, columns: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``trials`` with displayed values added to its rows, and all columns from the answer to ``columns``.

    `shown`: the visible columns.
    """
    listed = columns_of(query, columns)
    shown = [column for column in listed if column.is_shown]
    return {
        **found,
        "rows": [_row(query, [column.name for column in shown], row) for row in found["rows"]],
        "columns": listed,
        "shown": shown,
    }


def columns_of(query: PageQuery, columns: dict[str, Any]) -> list[Column]:
    """All columns: fixed ones, parameters, and further result keys. Selected columns come first, in their order."""
    parameters = {f"p.{one['name']}": one for one in columns["parameters"]}
    of_results = query.query.key or columns["key"]
    keys = [f"m.{key['name']}" for key in columns["keys"] if key["name"] != of_results]
    wanted = query.names("columns") or (*_SHOWN, *list(parameters)[:_MOST_PARAMETERS], *keys)
    titles = {**FIXED, **{name: name[2:] for name in (*parameters, *keys)}}
    needed = [name for name in _NEEDED if name not in wanted]
    shown = dict.fromkeys(name for name in (*needed, *wanted) if name in titles)
    names = {name: titles[name] for name in (*shown, *titles)}
    return [
        Column(
            name=name,
            title=title,
            is_number=name in _AT_THE_RIGHT
            or name.startswith("m.")
            or parameters.get(name, {}).get("kind") == "number",
            is_shown=name in shown,
        )
        for name, title in names.items()
    ]


def _row(query: PageQuery, shown: list[str], row: dict[str, Any]) -> dict[str, Any]:
    """A row with displayed values added.

    `line`: last line of stderr of a failed trial. `percent`: rank of its result from worst (0) to best (100); None: not
    comparable. `spark`: points of an SVG polyline; empty: no curve. `cells`: by column.
    """
    return {
        **row,
        "line": "" if row["line"] in row["reason"] else row["line"],
        "percent": None if row["position"] is None else round(100 * row["position"]),
        "is_open": row["status"] in OPEN_STATUSES,
        "is_ticked": row["number"] in query.query.selected,
        "spark": formats.spark_points(row["spark"]),
        "cells": {name: _cell(name, row) for name in shown},
    }


def _cell(name: str, row: dict[str, Any]) -> Cell:
    if name in ("started", "ended"):
        ms = row[f"{name}Ms"]
        return Cell(text="" if ms is None else formats.moment(ms))
    if name == "duration":
        return Cell(text="" if row["durationMs"] is None else duration(row["durationMs"]))
    return cell(_value(name, row))


def cell(value: object) -> Cell:
    """A value with six significant digits; the full text is its title if it differs."""
    text, whole = formats.cell(value), formats.whole(value)
    return Cell(text=text, title=whole if whole != text else "")


def _value(name: str, row: dict[str, Any]) -> object:
    if name.startswith("p."):
        return row["parameters"].get(name[2:])
    return row["metrics"].get(name[2:]) if name.startswith("m.") else row.get(name)


_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    kind: str
    cells: list[Cell]
    #: Whether the trials do not all have the same value.
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    #: (number, id, status) of each trial.
    heads: list[tuple[int, str, str]]
    lines: list[Line]
    #: Number of hidden lines, whose values are identical.
    hidden: int
    everything: bool


def compare(trials: Sequence[dict[str, Any]], now_ms: int, *, everything: bool) -> Compared:
    """Compare trials, given as in the API's answers. `everything`: include identical lines."""
    parameters = [flat(trial["parameters"]) for trial in trials]
    found = [
        *lines("result", [_results(trial) for trial in trials]),
        *lines("parameter", parameters),
        *lines("", [_facts(trial, now_ms) for trial in trials]),
    ]
    shown = chosen(found, everything=everything)
    return Compared(
        heads=[(trial["sequenceId"], trial["id"], trial["status"]) for trial in trials],
        lines=shown,
        hidden=len(found) - len(shown),
        everything=everything,
    )


def chosen(found: Sequence[Line], *, everything: bool) -> list[Line]:
    """The lines that differ, followed with `everything` by the others."""
    return sorted((line for line in found if everything or line.differs), key=lambda line: not line.differs)


def lines(kind: str, columns: Sequence[Mapping[str, Any]]) -> list[Line]:
    """A line for each name in any column, with its value in every column."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [_line(kind, name, [column.get(name, _ABSENT) for column in columns]) for name in names]


def _line(kind: str, name: str, values: list[object]) -> Line:
    cells = [Cell(text="absent") if value is _ABSENT else cell(value) for value in values]
    texts = {(value is _ABSENT, formats.whole(value) if value is not _ABSENT else "") for value in values}
    return Line(name=name, kind=kind, cells=cells, differs=len(texts) > 1)


def _results(trial: dict[str, Any]) -> dict[str, Any]:
    if trial["finalResult"] is None:
        return {} if trial["lastValue"] is None else {"latest": trial["lastValue"]}
    (result,) = parsed([trial["finalResult"]])
    return result if isinstance(result, dict) else {"default": result}


def _facts(trial: dict[str, Any], now_ms: int) -> dict[str, Any]:
    started, ended = trial["startedMs"], trial["endedMs"]
    took = "" if started is None else duration((now_ms if ended is None else ended) - started)
    return {
        "status": trial["status"],
        "duration": took,
        "intermediate results": trial["intermediates"],
        "attempts": trial["attempt"],
        "place": trial["place"] or trial["service"] or "",
        "parameters by": trial["parameterSource"],
    }
