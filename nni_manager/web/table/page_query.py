"""The query string of a page: the query of the analysis, and values of the page, such as columns.

A form may send a value in several fields (``low:p.lr`` and ``high:p.lr``, one ``status`` per box). `canonical` joins
these and removes empty ones. `fields` are the fields of the table's filter form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from nni_manager.analysis.query import Condition, Query, joined, split
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.web import formats

#: Fields of forms that are not part of the page's state.
_NOT_KEPT = frozenset({"back", "csrf"})
_LOW, _HIGH = "low:", "high:"
#: Form field with a value for each ticked row → name in the address.
_TICKED = {"tick": "selected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryString:
    """The query string of a page; links change some of its names."""

    #: Values in the address; each name occurs once.
    pairs: Mapping[str, str]

    def get(self, name: str) -> str:
        """The value of a name; empty: missing."""
        return self.pairs.get(name, "")

    def string(self, **changes: Any) -> str:
        """The query string with some values changed; None and "" remove a name."""
        values = {**self.pairs, **changes}
        return urlencode({name: str(value) for name, value in values.items() if value not in (None, "")})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery(QueryString):
    """The query string of a page about trials."""

    query: Query

    @staticmethod
    def parse(pairs: Iterable[tuple[str, str]]) -> PageQuery:
        """Raises InvalidInput with the invalid name."""
        found = canonical(pairs)
        return PageQuery(query=Query.parse(found, lenient=True), pairs=dict(found))

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names, such as columns; empty: missing."""
        text = self.get(name)
        return tuple(unquoted(one) for one in split(name, text)) if text else ()

    def sorted_by(self, column: str) -> str:
        """The query string that sorts by a column, or reverses its order; starts at the first page."""
        return self.string(sort=f"-{column}" if self.query.sort == column else column, page=None)

    def direction_of(self, column: str) -> str:
        return self.query.direction_of(column)

    @property
    def unfiltered(self) -> str:
        """The query string without filters."""
        return self.string(page=None, **dict.fromkeys(name for name, _ in self.filters))

    @property
    def filters(self) -> list[tuple[str, str]]:
        """(name, value) of each filter."""
        return [
            (name, text)
            for name, text in self.pairs.items()
            if name in ("status", "q", "failure") or name[:2] in ("p.", "m.")
        ]


def canonical(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs as in an address: without empty values, with the parts of ranges and choices joined."""
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        if name in _NOT_KEPT or not text.strip():
            continue
        found.setdefault(_TICKED.get(name, name), []).append(text.strip())
    for name in list(dict.fromkeys(name.partition(":")[2] for name in found if name.startswith((_LOW, _HIGH)))):
        low, high = found.pop(_LOW + name, [""])[0], found.pop(_HIGH + name, [""])[0]
        found[name] = [f"{low}..{high}"]
    texts = {name: values[0] if len(values) == 1 else joined(values) for name, values in found.items()}
    return [(name, text) for name, text in texts.items() if (name, text) != ("page", "1")]


def unquoted(text: str) -> str:
    """A name in a list, quoted if it contains a comma."""
    return str(json.loads(text)) if text.startswith('"') else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A check box of the form."""

    #: Value in the address.
    value: str
    label: str
    is_chosen: bool
    #: Number of trials; None: unknown.
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter or result key in the form."""

    #: ``p.NAME`` or ``m.KEY``.
    name: str
    label: str
    low: str = ""
    high: str = ""
    #: The observed range, as a hint; empty: unknown.
    hint: tuple[str, str] = ("", "")
    #: Empty: a range.
    choices: tuple[Choice, ...] = ()
    #: Number of choices that are not offered.
    others: int = 0

    @property
    def is_set(self) -> bool:
        return bool(self.low or self.high or any(choice.is_chosen for choice in self.choices))


def statuses(query: PageQuery, counts: dict[str, int]) -> list[Choice]:
    """A check box for each status that occurs or is selected."""
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
    if one["kind"] != "choice" and not (condition is not None and condition.choices):
        return _range(name, one["name"], condition, one["observed"])
    chosen = dict.fromkeys(split(name, text)) if text else {}
    labels = {as_choice(choice): formats.short(choice) for choice in one["choices"] or ()}
    # every value in the address needs a box, or submitting the form would drop it
    labels |= {value: formats.short(value) for value in chosen if value not in labels}
    boxes = [Choice(value=value, label=label, is_chosen=value in chosen) for value, label in labels.items()]
    return Field(name=name, label=one["name"], choices=tuple(boxes), others=one["others"])


def as_choice(value: object) -> str:
    """A choice in the address: JSON, or plain text if that is unambiguous."""
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
