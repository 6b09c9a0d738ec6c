"""The Pareto set of an experiment with objectives, as commands show it. Pure: state in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nni_manager.client.formats import compact, number, objectives

State = Mapping[str, Any]
#: Number of trials shown; the API and an export have more.
_SHOWN = 10


def shortly(state: State) -> str:
    """The set in a cell of a table, such as ``Pareto set of 3``, or empty."""
    if not state.get("paretoSize"):
        return ""
    return f"Pareto set of {state['paretoSize']}" if is_feasible(state) else "none feasible"


def is_feasible(state: State) -> bool:
    """Whether the set satisfies the constraints; if it does not, no trial does."""
    return all(trial["isFeasible"] for trial in (state.get("paretoSet") or ())[:1])


def facts(state: State) -> dict[str, str]:
    """Names and values for `nnictl experiment show`; empty without objectives."""
    if not state.get("objectives"):
        return {}
    lines = {"objectives": objectives(state), "Pareto set": _size(state)}
    shown = state["paretoSet"][:_SHOWN]
    return lines | {f"best {place}": _trial(trial) for place, trial in enumerate(shown, start=1)}


def text(state: State) -> str:
    """The final message about a non-empty set: the number of best trials, and the first of them as a table."""
    shown = state["paretoSet"][:_SHOWN]
    names = list(state["objectives"])
    rows = [
        (one["trialId"], *map(number, one["values"].values()), json.dumps(one["parameters"], ensure_ascii=False))
        for one in shown
    ]
    found = _table(("TRIAL", *(name.upper() for name in names), "PARAMETERS"), rows)
    return f"Best by {objectives(state)}: {_size(state)}\n{found}{_more(state)}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _size(state: State) -> str:
    size, shown = state["paretoSize"], state["paretoSet"]
    if not shown:
        return "no trial has a final result with a finite number for each objective yet"
    count = "1 trial" if size == 1 else f"a Pareto set of {size} trials"
    return count if is_feasible(state) else f"{count}; no trial satisfies the constraints, these violate them least"


def _more(state: State) -> str:
    rest = state["paretoSize"] - _SHOWN
    return f"\n… and {rest} more: `nnictl experiment export {state['id']} -f results.csv` has all" if rest > 0 else ""


def _trial(trial: dict[str, Any]) -> str:
    values = ", ".join(f"{name} {number(value)}" for name, value in trial["values"].items())
    return f"{values} (trial {trial['trialId']}): {compact(trial['parameters'])}"
