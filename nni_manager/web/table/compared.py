"""Trials side by side: a line for each parameter and result, those that differ first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.analysis.flattened import flat, parsed
from nni_manager.web import formats
from nni_manager.web.table.trial_table import Cell, cell

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
    #: Number of lines that are left out, as all trials have the same value.
    hidden: int
    everything: bool


def build(trials: Sequence[dict[str, Any]], now_ms: int, *, everything: bool) -> Compared:
    """`trials`: as the API answers them. `everything`: identical lines, too."""
    parameters = [flat(trial["parameters"]) for trial in trials]
    found = [
        *lines("result", [_results(trial) for trial in trials]),
        *lines("parameter", parameters),
        *lines("", [_facts(trial, now_ms) for trial in trials]),
    ]
    found.sort(key=lambda line: not line.differs)
    shown = found if everything else [line for line in found if line.differs]
    return Compared(
        heads=[(trial["sequenceId"], trial["id"], trial["status"]) for trial in trials],
        lines=shown,
        hidden=len(found) - len(shown),
        everything=everything,
    )


def lines(kind: str, columns: Sequence[Mapping[str, Any]]) -> list[Line]:
    """A line for each name that a column has, with its value in every column."""
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
    took = "" if started is None else formats.duration((now_ms if ended is None else ended) - started)
    return {
        "status": trial["status"],
        "duration": took,
        "intermediate results": trial["intermediates"],
        "attempts": trial["attempt"],
        "place": trial["place"] or trial["service"] or "",
        "made by": trial["parameterSource"],
    }
