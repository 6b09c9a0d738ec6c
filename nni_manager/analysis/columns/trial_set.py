"""The trials of an experiment as columns; `refresh` reads changes."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nni_manager.analysis.columns import space_columns
from nni_manager.analysis.columns.column import Growing, NamedColumns
from nni_manager.analysis.columns.space_columns import SpaceColumn
from nni_manager.analysis.flattened import flat, parsed
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.objectives import Goals
from nni_manager.domain.results import direction
from nni_manager.domain.trial import reason_in_words
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store import stored_config
from nni_manager.store.experiment import trial_columns
from nni_manager.store.experiment.trial_columns import Row

T = TypeVar("T")

#: Order of the status codes.
STATUSES = tuple(TrialStatus)
_CODES = {str(status): code for code, status in enumerate(STATUSES)}
#: Trials that are read at once.
_BATCH = 2000
#: Column → (type, value of a trial that has none).
_NUMBERS: Mapping[str, tuple[type, float]] = {
    "number": (np.int64, -1),
    "status": (np.int8, 0),
    "created": (np.float64, math.nan),
    "started": (np.float64, math.nan),
    "ended": (np.float64, math.nan),
    "steps": (np.int32, 0),
    "last": (np.float64, math.nan),
    "final": (np.float64, math.nan),
    "has_final": (np.bool_, False),
    "failure": (np.int32, -1),
}


class TrialSet:
    """The columns; a trial's position is the same in all of them, and trials are in the order of their numbers."""

    def __init__(self) -> None:
        self._columns = {name: Growing(dtype, fill) for name, (dtype, fill) in _NUMBERS.items()}
        self.ids: list[str] = []
        #: Position → why the trial has its status, for those where there is something to say.
        self.reasons: dict[int, str] = {}
        #: Failure keys, in the order of their codes, and their hashes.
        self.failures: list[str] = []
        self.failure_hashes: list[str] = []
        self._failure_codes: dict[str, int] = {"": -1}
        #: Entries of final results that are objects.
        self.metrics = NamedColumns()
        self.parameters = NamedColumns()
        self._last_record = -1
        self._ended = 0
        self._created_ms: int | None = None
        self._config_text = ""
        self.direction = OptimizeMode.MINIMIZE
        #: None: one number, `default`, is what counts.
        self.goals: Goals | None = None
        #: Of the search space, by flattened name.
        self.space: Mapping[str, SpaceColumn] = {}
        #: Grows with every refresh that found something.
        self.version = 0
        #: Positions of the trials that were read again since the attempts were.
        self.changed: set[int] = set()
        self._derived: dict[Any, Any] = {}
        #: Derived data that stays valid as trials are added; each module bounds its own.
        self.kept: dict[str, Any] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column of that name: ``number``, ``status`` (index in `STATUSES`), ``created``, ``started``, ``ended``
        (ms), ``steps``, ``last``, ``final``, ``has_final``, ``failure`` (index in `failures`, -1: not failed)."""
        return self._columns[name].array

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        own = sum(column.nbytes for column in self._columns.values()) + 60 * len(self.ids) + 200 * len(self.reasons)
        return own + self.metrics.nbytes + self.parameters.nbytes

    def derive(self, key: object, make: Callable[[], T]) -> T:
        """The result of `make` on the columns, computed once per version; `key` identifies it."""
        if key not in self._derived:
            self._derived[key] = make()
        found: T = self._derived[key]
        return found

    def has_all(self, connection: sqlite3.Connection) -> bool:
        """Whether all trials are loaded, and all finished ones as finished."""
        head = trial_columns.head(connection)
        return head.trials == len(self) and head.ended == self._ended

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Read changes. The connection must be in a transaction, so that all reads see one state."""
        head = trial_columns.head(connection)
        if self._created_ms is not None and not self._goes_on(head):
            self.__init__()  # type: ignore[misc]  # other content, for example after a restored backup
        if head.config != self._config_text:
            self._take_config(head)
        is_first = self._created_ms is None
        rows = trial_columns.all_trials(connection) if is_first else trial_columns.changed(connection, self._ended)
        self._created_ms, self._ended = head.created_ms, head.ended
        while batch := rows.fetchmany(_BATCH):  # in batches, which takes less memory and time
            positions = self._take(batch)
            self.changed.update(() if is_first else positions)
        if len(self) != head.trials:
            raise LookupError("trials are missing between two reads")
        self.version += 1
        self._derived.clear()

    def read_parameters(self, connection: sqlite3.Connection) -> None:
        """Read the parameters of new trials."""
        self.parameters.resize(len(self))
        while rows := trial_columns.records(connection, self._last_record, _BATCH):
            values = [record.get("parameters") if isinstance(record, dict) else None for record in _records(rows)]
            positions = self.positions([number for number, _ in rows])
            self.parameters.put(positions, [flat(value) for value in values])
            self._last_record = rows[-1][0]
            if self._last_record >= int(self["number"][-1]):
                break

    def positions(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """The positions of existing trials, by their numbers."""
        return np.searchsorted(self["number"], np.asarray(numbers, np.int64))

    def position(self, number: int) -> int | None:
        """The position of the trial with a number, or None."""
        found = int(np.searchsorted(self["number"], number))
        return found if found < len(self) and int(self["number"][found]) == number else None

    @property
    def usual_key(self) -> str:
        """The default key of results: the first objective, else ``default``."""
        return next(iter(self.goals.objectives)) if self.goals is not None else DEFAULT_KEY

    def direction_of(self, key: str) -> OptimizeMode:
        """The direction of results under a key, from its objective or else from the tuner's `optimize_mode`."""
        return self.direction if self.goals is None else self.goals.objectives.get(key, self.direction)

    def _goes_on(self, head: trial_columns.Head) -> bool:
        return self._created_ms == head.created_ms and head.ended >= self._ended and head.trials >= len(self)

    def _take_config(self, head: trial_columns.Head) -> None:
        config = parsed([head.config])[0] or {}
        self._config_text = head.config
        self.direction = direction.find(config, head.class_direction).mode
        self.goals = stored_config.goals(config)
        self.space = space_columns.of(config.get("searchSpace"))

    def _take(self, rows: Sequence[Row]) -> list[int]:
        """Write rows into the columns; return their positions."""
        columns = dict(zip(trial_columns.COLUMNS, zip(*rows, strict=True), strict=True))
        known = self._append_new(columns)
        positions = self.positions(columns["sequence_id"])
        self["status"][positions] = list(map(_CODES.__getitem__, columns["status"]))
        for name, column in (("created", "created_ms"), ("started", "started_ms"), ("ended", "ended_ms")):
            self[name][positions] = np.array(columns[column], np.float64)
        self["steps"][positions] = columns["intermediates"]
        self["last"][positions] = np.array(columns["last_value"], np.float64)
        self["final"][positions] = np.array(columns["final_value"], np.float64)
        self["has_final"][positions] = np.array(columns["has_final"], np.bool_)
        for position in positions[:known].tolist():
            self.reasons.pop(position, None)
        self._take_words(positions, columns["words"])
        self._take_objects(positions, columns["final_object"])
        found: list[int] = positions.tolist()
        return found

    def _append_new(self, columns: Mapping[str, Sequence[Any]]) -> int:
        """Append new trials; return the number of rows of known trials."""
        last, before = (int(self["number"][-1]) if self.ids else -1), len(self.ids)
        known = bisect_right(columns["sequence_id"], last)
        self.ids += columns["id"][known:]
        for column in self._columns.values():
            column.resize(len(self.ids))
        self["number"][before:] = columns["sequence_id"][known:]
        self.metrics.resize(len(self.ids))
        return known

    def _failure(self, key: str) -> int:
        code = self._failure_codes.get(key)
        if code is None:
            code = self._failure_codes[key] = len(self.failures)
            self.failures.append(key)
            self.failure_hashes.append(failure_hash(key))
        return code

    def _take_words(self, positions: NDArray[np.int64], texts: Sequence[str | None]) -> None:
        self["failure"][positions] = -1
        places = [place for place, text in enumerate(texts) if text is not None]
        words = parsed([texts[place] or "" for place in places])
        for position, (failure, *told) in zip(positions[places].tolist(), words, strict=True):
            self["failure"][position] = self._failure(failure)
            if any(told):
                reason, message, last_words, wait = told
                status = STATUSES[int(self["status"][position])]
                self.reasons[position] = wait or reason_in_words(reason, message, last_words, status)

    def _take_objects(self, positions: NDArray[np.int64], texts: Sequence[str | None]) -> None:
        places = [place for place, text in enumerate(texts) if text is not None]
        found = parsed([texts[place] or "" for place in places])
        kept = [place for place, value in zip(places, found, strict=True) if isinstance(value, dict)]
        self.metrics.put(positions[kept], [value for value in found if isinstance(value, dict)])


def _records(rows: Sequence[tuple[int, str]]) -> list[Any]:
    return parsed([text for _, text in rows])


def failure_hash(key: str) -> str:
    """A short name for a failure key, for addresses: twelve hexadecimal digits; empty for an empty key."""
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:12] if key else ""
