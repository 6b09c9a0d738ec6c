"""One experiment at a glance: what the API's description of it and its page are made from."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.experiment import Hold
from nni_manager.store import answers, experiments, stored_config
from nni_manager.store.experiments import ExperimentRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best succeeded trial so far."""

    trial_id: str
    #: None: infinite.
    value: float | None
    #: As the trial got them; null where JSON has no word for a number.
    parameters: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What only the daemon that works on an experiment knows."""

    #: Whether anybody works on it.
    at_work: bool
    #: A hold that is not recorded because it ends by itself.
    derived_hold: Hold | None
    #: Why nobody works on it although somebody should; empty when all is well.
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Recorded state and what is known only now, put together."""

    row: ExperimentRow
    #: Canonical; secrets included: never log it, mask it before it leaves.
    config: Mapping[str, Any] = field(repr=False)
    hold: Hold | None
    #: Everything that keeps it from going on, a sentence each.
    errors: tuple[str, ...]
    #: Milliseconds spent active.
    exec_ms: int
    #: Trials by status, only those that occur.
    counts: Mapping[str, int]
    best: Best | None

    @property
    def platform(self) -> str:
        """Names joined by comma when there are several."""
        return stored_config.platform(self.config)


def load(connection: sqlite3.Connection, live: Live, now_ms: int) -> Overview:
    """Reads it in a handful of queries."""
    row = experiments.load(connection)
    config = json.loads(row.config)
    return Overview(
        row=row,
        config=config,
        hold=row.hold or live.derived_hold,
        errors=errors(row, live),
        exec_ms=exec_ms(row, live, now_ms),
        counts=answers.counts(connection),
        best=_best(connection, config),
    )


def errors(row: ExperimentRow, live: Live) -> tuple[str, ...]:
    """Everything that keeps it from going on, a sentence each."""
    hold = row.hold or live.derived_hold
    return tuple(filter(None, (row.error, hold.sentence if hold else "", live.problem)))


def exec_ms(row: ExperimentRow, live: Live, now_ms: int) -> int:
    """Milliseconds spent active, up to now."""
    since = max(0, now_ms - row.counted_ms) if live.at_work and row.status.is_active else 0
    return row.exec_ms + since


def _best(connection: sqlite3.Connection, config: Mapping[str, Any]) -> Best | None:
    found = answers.best(connection, maximize=stored_config.maximizes(config))
    if found is None:
        return None
    trial_id, value, record = found
    parameters = json.loads(record, parse_constant=lambda _: None)["parameters"]
    return Best(trial_id=trial_id, value=value if math.isfinite(value) else None, parameters=parameters)
