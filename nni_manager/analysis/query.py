"""Parameters of a query: filter, order, page and choices, from and to a query string.

Pages and the API share it: the query string of a page is the query of its charts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial_status import TrialStatus

#: Key of a result that is a plain number, and of the entry that tuners see.
DEFAULT_KEY = "default"
#: Columns by which trials are sorted, in addition to ``p.NAME`` and ``m.KEY``.
SORTED_BY = ("number", "id", "status", "result", "latest", "duration", "started", "ended", "place")
X_AXES = ("number", "elapsed", "clock")
MOST_ROWS = 1000
MOST_TOP = 100
MOST_SELECTED = 100
#: Bounds of an outlier's distance from the quartiles, in interquartile ranges.
_CLIP_LOW, _CLIP_HIGH = 1.5, 3.0
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf(?:inity)?)"
_RANGE = re.compile(rf"\s*({_NUMBER})?\s*\.\.\s*({_NUMBER})?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A range, both ends included, or a set of choices."""

    #: None: open.
    low: float | None = None
    high: float | None = None
    #: Texts or JSON of the values; empty: a range.
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return joined(self.choices) if self.choices else f"{_printed(self.low)}..{_printed(self.high)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query of a question; the defaults choose everything."""

    #: Empty: any.
    status: tuple[TrialStatus, ...] = ()
    #: Beginning of an id, number, or text in the message; empty: any.
    q: str = ""
    #: Flattened name → condition.
    parameters: tuple[tuple[str, Condition], ...] = ()
    #: Key of a final result → condition.
    metrics: tuple[tuple[str, Condition], ...] = ()
    #: Hash of a failure key; empty: any.
    failure: str = ""
    #: Column, with a minus in reverse order.
    sort: str = "-number"
    #: Key of the results; empty: the experiment's.
    key: str = ""
    #: None: the experiment's.
    direction: OptimizeMode | None = None
    #: Number of best trials to highlight.
    top: int = 20
    #: Interquartile ranges beyond which a result is hidden; None: all are shown.
    clip: float | None = None
    #: Numbers of the trials that are always drawn.
    selected: tuple[int, ...] = ()
    x: str = "number"
    #: From 1.
    page: int = 1
    limit: int = 50
    #: Name of one parameter; empty: the most important ones.
    parameter: str = ""
    #: Names of two parameters.
    a: str = ""
    b: str = ""
    #: Names of parameters, in the order of the axes; empty: the most important ones.
    axes: tuple[str, ...] = ()
    #: Number of one trial.
    number: int | None = None
    #: Part of the x axis (results) or of the time (timeline).
    start: float | None = None
    end: float | None = None

    @staticmethod
    def parse(items: Iterable[tuple[str, str]], *, lenient: bool = False) -> Query:
        """The query in name-value pairs. `lenient`: ignore unknown names.

        Raises InvalidInput with the name of the invalid parameter.
        """
        found: dict[str, Any] = {}
        conditions: dict[str, dict[str, Condition]] = {"p": {}, "m": {}}
        for word, text in items:
            kind, dot, name = word.partition(".")
            if dot and kind in conditions and name:
                _once(word, conditions[kind])
                if text:  # forms send empty fields, too
                    conditions[kind][name] = _condition(word, text, ranges_only=kind == "m")
            elif word in _PARSERS:
                field, parse = _PARSERS[word]
                _once(word, found, field)
                found[field] = parse(word, text) if text else _DEFAULTS[field]
            elif not lenient:
                raise InvalidInput(f"{word}: unknown; use {', '.join(_PARSERS)}, p.NAME or m.KEY")
        return Query(**found, parameters=tuple(conditions["p"].items()), metrics=tuple(conditions["m"].items()))

    def pairs(self) -> list[tuple[str, str]]:
        """The name-value pairs that differ from the defaults."""
        found: list[tuple[str, str]] = []
        for name in _FIELDS:
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                found.append((_WORDS.get(name, name), _text(name, value)))
        found += [(f"p.{name}", str(condition)) for name, condition in self.parameters]
        return found + [(f"m.{name}", str(condition)) for name, condition in self.metrics]

    def string(self, **changes: Any) -> str:
        """The query string, with some fields changed, without defaults."""
        return urlencode(replace(self, **changes).pairs())

    def direction_of(self, column: str) -> str:
        """The value of a column's ``aria-sort``."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


def _once(word: str, found: dict[str, Any], field: str = "") -> None:
    if (field or word.partition(".")[2]) in found:
        raise InvalidInput(f"{word}: given twice; give it once")


def _condition(word: str, text: str, *, ranges_only: bool) -> Condition:
    if (found := _RANGE.fullmatch(text)) is not None:
        low, high = (None if end is None else float(end) for end in found.groups())
        if low is None and high is None:
            raise InvalidInput(f"{word}: the range has neither end; write LOW..HIGH, LOW.. or ..HIGH")
        return Condition(low=low, high=high)
    choices = () if ranges_only else tuple(split(word, text))
    if not choices:
        raise InvalidInput(f"{word}: must be LOW..HIGH, LOW.. or ..HIGH, not {text!r}")
    return Condition(choices=choices)


def _statuses(word: str, text: str) -> tuple[TrialStatus, ...]:
    words = text.split(",")
    for one in words:
        if one not in TrialStatus.__members__:
            raise InvalidInput(f"{word}: {one!r} is not a status; use {', '.join(TrialStatus)}")
    return tuple(TrialStatus(one) for one in dict.fromkeys(words))


def _sort(word: str, text: str) -> str:
    column = text.removeprefix("-")
    if column not in SORTED_BY and not re.match(r"[pm]\..", column):
        raise InvalidInput(f"{word}: must be one of {', '.join(SORTED_BY)}, p.NAME, m.KEY, or one after a minus")
    return text


def _direction(word: str, text: str) -> OptimizeMode:
    try:
        return OptimizeMode(text)
    except ValueError:
        raise InvalidInput(f"{word}: must be minimize or maximize, not {text!r}") from None


def _clip(word: str, text: str) -> float | None:
    if text in ("0", "1"):
        return _CLIP_LOW if text == "1" else None
    number = _finite(word, text)
    if not _CLIP_LOW <= number <= _CLIP_HIGH:
        raise InvalidInput(f"{word}: must be 1, or a number from {_CLIP_LOW} to {_CLIP_HIGH:g}")
    return number


def _x(word: str, text: str) -> str:
    if text not in X_AXES:
        raise InvalidInput(f"{word}: must be one of {', '.join(X_AXES)}, not {text!r}")
    return text


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    def parse(word: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 15 and low <= int(text) <= high):
            raise InvalidInput(f"{word}: must be a whole number from {low} to {high}, not {text[:40]!r}")
        return int(text)

    return parse


def _selected(word: str, text: str) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(_TRIAL_NUMBER(word, one) for one in text.split(",")))
    if len(numbers) > MOST_SELECTED:
        raise InvalidInput(f"{word}: at most {MOST_SELECTED} trials")
    return numbers


def _finite(word: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{word}: must be a number, not {text[:40]!r}")
    return number


def _word(word: str, text: str) -> str:
    return text


def _names(word: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(json.loads(one) if one.startswith('"') else one for one in split(word, text)))


_TRIAL_NUMBER = _whole(0, 10**12)
#: Word in a query string → field and parser, in the order of printing.
_PARSERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "status": ("status", _statuses),
    "q": ("q", _word),
    "failure": ("failure", _word),
    "sort": ("sort", _sort),
    "key": ("key", _word),
    "direction": ("direction", _direction),
    "top": ("top", _whole(1, MOST_TOP)),
    "clip": ("clip", _clip),
    "selected": ("selected", _selected),
    "x": ("x", _x),
    "page": ("page", _whole(1, 10**9)),
    "limit": ("limit", _whole(1, MOST_ROWS)),
    "parameter": ("parameter", _word),
    "a": ("a", _word),
    "b": ("b", _word),
    "axes": ("axes", _names),
    "number": ("number", _TRIAL_NUMBER),
    "from": ("start", _finite),
    "to": ("end", _finite),
}
_WORDS = {field: word for word, (field, _) in _PARSERS.items()}
_FIELDS = tuple(field for field, _ in _PARSERS.values())
_DEFAULTS = {field.name: field.default for field in fields(Query)}


def _text(field: str, value: Any) -> str:
    if field == "axes":
        return ",".join(json.dumps(one) if "," in one or one.startswith(ESCAPED) else one for one in value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return _printed(value) if isinstance(value, float) else str(value)


def _printed(number: float | None) -> str:
    return "" if number is None else repr(number).removesuffix(".0")


_decoder = json.JSONDecoder()
#: Characters with which JSON begins.
ESCAPED = ('"', "[", "{")


def split(word: str, text: str) -> Iterator[str]:
    """The values of a comma-separated list, which may be JSON.

    A text in quotes keeps its quotes: it means the text, not the number or truth value of that spelling. Raises
    InvalidInput with `word`, the name of the query parameter.
    """
    at = 0
    while at <= len(text):
        end = _json_end(word, text, at) if text.startswith(ESCAPED, at) else text.find(",", at)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1


def joined(values: Iterable[str]) -> str:
    """The list that `split` splits into these values."""
    return ",".join(json.dumps(value) if _is_misread(value) else value for value in values)


def _is_misread(value: str) -> bool:
    if value.startswith(ESCAPED):
        try:
            return _decoder.raw_decode(value)[1] != len(value)
        except ValueError:
            return True
    return "," in value


def _json_end(word: str, text: str, at: int) -> int:
    try:
        _, end = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f"{word}: {text[at : at + 40]!r} begins like JSON, but is invalid; put the text in quotes"
        ) from None
    if end < len(text) and text[end] != ",":
        raise InvalidInput(f"{word}: a comma is missing after {text[at:end][-40:]!r}")
    return end
