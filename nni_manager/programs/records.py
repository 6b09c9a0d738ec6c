"""Trials of an experiment as records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import NniManagerError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best trial."""

    value: float
    parameters: Any
    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial. Times are in UTC; None: not yet."""

    id: str
    #: 0, 1, 2, …: the order of creation.
    number: int
    #: Status in NNI's terms: ``WAITING``, ``RUNNING``, ``SUCCEEDED``, ``FAILED`` …
    status: str
    #: Parameters of the trial.
    parameters: Any
    #: The final result as reported: a number, also NaN and infinite, a dict, anything; None: none.
    result: Any
    #: The number of the final result; None: none, NaN or infinite.
    value: float | None
    #: Number of the latest intermediate result, and how many there are.
    latest: float | None
    intermediates: int
    created: datetime
    started: datetime | None
    ended: datetime | None
    attempt: int
    #: How it ended, one sentence, or empty.
    message: str
    #: Line of its stderr that tells why it failed.
    last_words: str
    #: Number of the state of the code that it ran in place; None: it ran a copy, or the code was not known.
    code_state: int | None
    #: Where it runs or ran.
    place: str

    @property
    def seconds(self) -> float | None:

        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


def trial(answer: Mapping[str, Any]) -> Trial:
    """A trial from the API's description of it."""
    result = answer["finalResult"]
    return Trial(
        id=answer["id"],
        number=answer["sequenceId"],
        status=answer["status"],
        parameters=answer["parameters"],
        result=None if result is None else json.loads(result),
        value=answer["finalValue"],
        latest=answer["lastValue"],
        intermediates=answer["intermediates"],
        created=datetime.fromtimestamp(answer["createdMs"] / 1000, UTC),
        started=_moment(answer["startedMs"]),
        ended=_moment(answer["endedMs"]),
        attempt=answer["attempt"],
        message=answer["message"],
        last_words=answer["lastWords"],
        code_state=answer.get("codeState"),
        place=answer["place"],
    )


class Trials(list[Trial]):
    """Trials in the order of creation."""

    def to_frame(self) -> pandas.DataFrame:
        """A table with a column for each field, parameter (``parameters.lr``) and key of dict results
        (``result.accuracy``).

        Number, status, value and parameters come first, then times, then the rest. Raises NniManagerError where pandas
        is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise NniManagerError("to_frame needs pandas; install it with `pip install pandas`") from None
        rows = [_row(one) for one in self]
        names = dict.fromkeys(name for row in rows for name in row) or [*(one.name for one in fields(Trial)), "seconds"]
        return pandas.DataFrame(rows, columns=sorted(names, key=_place))


#: The columns of a table that come first, in this order.
_FIRST = ("number", "status", "value", "parameters", "created", "started", "ended", "seconds")


def _place(column: str) -> int:
    """The place of a column, or of the field that it is a part of, among the others."""
    field = column.partition(".")[0]
    return _FIRST.index(field) if field in _FIRST else len(_FIRST)


def trials(answers: Iterable[Mapping[str, Any]]) -> Trials:
    return Trials(trial(answer) for answer in answers)


def _row(one: Trial) -> dict[str, Any]:
    row = {**asdict(one), "seconds": one.seconds}
    for name in ("parameters", "result"):
        if isinstance(value := row[name], dict):
            del row[name]
            row |= {f"{name}.{key}": inner for key, inner in _flat(value)}
    return row


def _flat(value: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{before}{key}.")
        else:
            yield f"{before}{key}", inner


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
