"""The filter form of the table: a field for each parameter and each key of results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nni_manager.analysis.choice_list import split
from nni_manager.analysis.query import Condition
from nni_manager.domain.trial import TrialStatus
from nni_manager.web import formats
from nni_manager.web.table.page_query import PageQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A box of the form."""

    #: As the address has it.
    value: str
    label: str
    is_chosen: bool
    #: Number of trials; None: not known.
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter or a key of results in the form."""

    #: ``p.NAME`` or ``m.KEY``.
    name: str
    label: str
    low: str = ""
    high: str = ""
    #: The range that was observed, as a hint; empty: none.
    hint: tuple[str, str] = ("", "")
    #: Empty: a range.
    choices: tuple[Choice, ...] = ()

    @property
    def is_set(self) -> bool:
        return bool(self.low or self.high or any(choice.is_chosen for choice in self.choices))


def statuses(query: PageQuery, counts: dict[str, int]) -> list[Choice]:
    """A box for each status that occurs or is chosen."""
    chosen = query.query.status
    return [
        Choice(value=one, label=one, is_chosen=one in chosen, count=counts.get(one, 0))
        for one in TrialStatus
        if counts.get(one) or one in chosen
    ]


def fields(query: PageQuery, columns: dict[str, Any]) -> list[Field]:
    """`columns`: the answer to the question ``columns``."""
    given = dict(query.query.parameters)
    found = [_parameter(one, given.get(one["name"]), query.get(f"p.{one['name']}")) for one in columns["parameters"]]
    conditions = dict(query.query.metrics)
    return found + [
        _range(f"m.{key['name']}", key["name"], conditions.get(key["name"]), key) for key in columns["keys"]
    ]


def _parameter(one: dict[str, Any], condition: Condition | None, text: str) -> Field:
    name = f"p.{one['name']}"
    if one["kind"] != "choice":
        return _range(name, one["name"], condition, one["observed"])
    chosen = set(split(name, text)) if text else set()
    boxes = [
        Choice(value=value, label=formats.short(choice), is_chosen=value in chosen)
        for choice in one["choices"] or ()
        for value in [as_choice(choice)]
    ]
    return Field(name=name, label=one["name"], choices=tuple(boxes))


def as_choice(value: object) -> str:
    """A choice as the address has it: JSON, but a text that reads as nothing else stands alone."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = bool(value) and "," not in value and ".." not in value and not value.startswith(('"', "[", "{"))
    return value if is_plain and not _reads_as_json(value) else json.dumps(value)


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _range(name: str, label: str, condition: Condition | None, observed: dict[str, Any]) -> Field:
    low, high = (condition.low, condition.high) if condition is not None else (None, None)
    hint = (formats.cell(observed.get("min")), formats.cell(observed.get("max")))
    return Field(name=name, label=label, low=_text(low), high=_text(high), hint=hint)


def _text(number: float | None) -> str:
    return "" if number is None else repr(number).removesuffix(".0")
