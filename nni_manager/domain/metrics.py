"""Metrics that trials report, one per line of an outbox.

Invalid lines are counted and dropped; the first one of each cause is reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trial_runner import protocol


class MetricType(StrEnum):
    """The type of a metric, with NNI's values."""

    #: An intermediate result.
    PERIODICAL = "PERIODICAL"
    #: The final result.
    FINAL = "FINAL"


class OptimizeMode(StrEnum):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


#: `OptimizeMode` as configs write it.
OptimizeModeName = Literal["maximize", "minimize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A reported value, identified by (trial, attempt, outbox, number)."""

    type: MetricType
    #: JSON text of the value as reported; NaN and Infinity may stand bare in it.
    data: str
    #: The number that is compared: the value itself or its ``default``; None when there is none.
    value: float | None
    #: 0-based line in the stretch of the outbox it came with.
    number: int
    #: The step of an intermediate result, from 0; None: it was reported without one.
    step: int | None = None


def default_number(value: object) -> float | None:
    """A metric's comparable number: itself, or the entry ``default`` of an object; None when not a number."""
    if isinstance(value, dict):
        value = value.get("default")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf if value > 0 else -math.inf


#: Placeholder of a line that is too long to be read.
_TOO_LONG = json.loads(protocol.TOO_LONG)
#: Placeholders of files that were not read; the trial did not write them.
_NOT_RESULTS = (json.loads(protocol.NOT_READ), json.loads(protocol.GONE))
_TYPES = {"intermediate": MetricType.PERIODICAL, "final": MetricType.FINAL}
#: The cause that is reported for a line that is too long.
TOO_LONG = f"is longer than the maximum of {protocol.MAX_RECORD} bytes"
#: Characters of a broken line that a message repeats.
_EXCERPT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The content of consecutive lines."""

    #: Lines, broken and empty ones included.
    count: int
    metrics: tuple[Metric, ...]
    #: Cause → one sentence about the first line that is broken in this way.
    broken: Mapping[str, str]


def parse_own(lines: Sequence[str], first: int = 0) -> Lines:
    """Our own lines: ``{"type": "intermediate"|"final", "value": any JSON [, "step": 7]}``.

    `first`: number of the first of them."""
    return _parse(lines, first, _own_metric)


def parse_nni(lines: Sequence[str], first: int = 0) -> Lines:
    """Records of NNI's SDK: ``type`` PERIODICAL or FINAL and ``value``, a JSON text inside the JSON."""
    return _parse(lines, first, _nni_metric)


def joined_lines(parts: Sequence[Lines]) -> Lines:
    """Consecutive parts, joined."""
    return Lines(
        count=sum(part.count for part in parts),
        metrics=tuple(metric for part in parts for metric in part.metrics),
        broken={cause: sentence for part in reversed(parts) for cause, sentence in part.broken.items()},
    )


class _TooLong(Exception):
    """The line is the placeholder of one that is too long."""


def _parse(lines: Sequence[str], first: int, metric: Callable[[int, object], Metric | None]) -> Lines:
    metrics: list[Metric] = []
    broken: dict[str, str] = {}
    for number, entry in enumerate(_decode(lines), first):
        try:
            found = metric(number, entry.decoded() if isinstance(entry, _Undecoded) else entry)
        except _TooLong:
            broken.setdefault(TOO_LONG, f"line {number + 1} {TOO_LONG}; report less at once")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            cause = f"no field {error}" if isinstance(error, KeyError) else str(error)
            broken.setdefault(cause, f"line {number + 1} is not a metric ({cause}): {lines[number - first][:_EXCERPT]}")
        else:
            if found is not None:
                metrics.append(found)
    return Lines(count=len(lines), metrics=tuple(metrics), broken=broken)


@dataclass(frozen=True, slots=True)
class _Undecoded:
    text: str

    def decoded(self) -> object:
        """The JSON value, without the byte order mark that some libraries begin a file with."""
        return json.loads(self.text.removeprefix("\ufeff"))


def _decode(lines: Sequence[str]) -> Sequence[object]:
    """All lines, decoded at once (a quarter of the cost), or undecoded when that fails."""
    try:
        entries = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        return [_Undecoded(line) for line in lines]
    return entries if len(entries) == len(lines) else [_Undecoded(line) for line in lines]


def _own_metric(number: int, entry: object) -> Metric | None:
    if entry in _NOT_RESULTS:
        return None
    if not isinstance(entry, dict):
        raise TypeError("not an object")
    type_ = _TYPES.get(entry["type"])
    if entry == _TOO_LONG:
        raise _TooLong
    if type_ is None:
        raise ValueError("type must be intermediate or final")
    value, step = entry["value"], _step(entry)
    return Metric(type=type_, data=json.dumps(value), value=default_number(value), number=number, step=step)


#: The greatest step: beyond it numbers of JSON are not exact everywhere.
_MOST_STEPS = 2**53 - 1


def _step(entry: Mapping[str, object]) -> int | None:
    """The step of an intermediate result, or None. Raises ValueError."""
    step = entry.get("step") if entry["type"] == "intermediate" else None
    if step is None:
        return None
    if isinstance(step, float) and step.is_integer():  # as some languages write whole numbers
        step = int(step)
    if type(step) is not int or not 0 <= step <= _MOST_STEPS:
        raise ValueError("step must be a whole number from 0 to 2**53 - 1")
    return step


def _nni_metric(number: int, entry: object) -> Metric | None:
    if not isinstance(entry, dict):
        raise TypeError("not an object")
    if entry["type"] == "REQUEST_PARAMETER":
        return None  # multi-phase leftover of the old SDK: not a result
    value, text = json.loads(entry["value"]), entry["value"]
    data = text if text.isascii() else json.dumps(value)  # half a surrogate pair could not be stored
    return Metric(type=MetricType(entry["type"]), data=data, value=default_number(value), number=number)
