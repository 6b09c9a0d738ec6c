"""The results of an experiment that lists show; the index stores those of closed ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.results import direction
from nni_manager.domain.trial import reason_in_words
from nni_manager.store.experiment import answers
from nni_manager.store.index import best_results
from nni_manager.store.index.best_results import ParetoSet, ParetoTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best succeeded trial so far."""

    trial_id: str
    value: float
    #: The trial's parameters; NaN and infinity become null.
    parameters: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFailure:
    """The most frequent failure of an experiment."""

    #: Number of trials that failed in this way.
    trials: int
    #: The newest of them.
    trial_id: str
    #: How that one ended, with the stderr line that states the cause.
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSummary:
    #: Trials by status, without zeros.
    counts: Mapping[str, int]
    trials_made: int
    #: None: unlimited.
    max_trial_number: int | None
    optimize_mode: OptimizeMode
    #: See `domain.results.direction.Direction.note`.
    direction_note: str = ""
    best: Best | None
    #: None: no trial failed.
    common_failure: CommonFailure | None = None
    #: Objective → its direction; empty: a single number, `default`, counts.
    objectives: Mapping[str, OptimizeMode] = field(default_factory=dict)
    #: None: no objectives.
    pareto_set: ParetoSet | None = None
    #: The best result so far, after each of equal shares of the trials with one; only of a closed experiment.
    course: tuple[float, ...] = ()
    #: Milliseconds it was active; None: unknown, or still counted.
    exec_ms: int | None = None
    #: As in `StoredExperiment`; only of a closed experiment.
    ended_as: str = ""

    @property
    def maximizes(self) -> bool:
        """Whether greater results are better."""
        return self.optimize_mode is OptimizeMode.MAXIMIZE

    @property
    def has_one_direction(self) -> bool:
        """Whether all results are compared in one direction; several objectives have one each."""
        return len(self.objectives) <= 1

    @property
    def direction_words(self) -> str:
        """The meaning of "best", such as ``lowest: default of TPE``."""
        word = "highest" if self.maximizes else "lowest"
        return ": ".join(filter(None, (word, self.direction_note)))

    def text(self) -> str:
        """The results as JSON, for `parse`."""
        return json.dumps(asdict(self))


def parse(text: str) -> ListSummary | None:
    """Parses the result of `ListSummary.text`; None: the text is empty."""
    if not text:
        return None
    values = json.loads(text)
    best, failure = values.pop("best"), values.pop("common_failure")
    mode = OptimizeMode(values.pop("optimize_mode"))
    objectives = {name: OptimizeMode(one) for name, one in values.pop("objectives", {}).items()}
    front = values.pop("pareto_set", None)
    course = tuple(values.pop("course", ()))
    return ListSummary(
        **values,
        optimize_mode=mode,
        best=best and Best(**best),
        common_failure=failure and CommonFailure(**failure),
        objectives=objectives,
        pareto_set=front
        and ParetoSet(size=front["size"], trials=tuple(ParetoTrial(**trial) for trial in front["trials"])),
        course=course,
    )


def load(connection: sqlite3.Connection, config: Mapping[str, Any], class_direction: str) -> ListSummary:
    """`config`: the experiment's, canonical; `class_direction`: as in `StoredExperiment`."""
    (made,) = connection.execute("SELECT next_sequence_id FROM experiment").fetchone()
    found_direction = direction.find(config, class_direction)
    found = best_results.load_pareto_set(connection, config)
    return ListSummary(
        counts=answers.counts(connection),
        trials_made=made,
        max_trial_number=config.get("maxTrialNumber"),
        optimize_mode=found_direction.mode,
        direction_note=found_direction.note,
        best=_best(connection, maximizes=found_direction.maximizes) if found is None else _only_best(found),
        common_failure=_common_failure(connection),
        objectives={name: OptimizeMode(mode) for name, mode in (config.get("objectives") or {}).items()},
        pareto_set=found,
    )


def text_of(connection: sqlite3.Connection) -> str:
    """The summary as the index stores it; the database may have an older schema."""
    cursor = connection.execute("SELECT * FROM experiment")
    row = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
    config = json.loads(row["config"])
    summary = load(connection, config, row.get("class_direction", ""))
    course = best_results.load_course(connection, config, maximizes=summary.maximizes)
    return replace(summary, course=course, exec_ms=row["exec_ms"], ended_as=row.get("ended_as", "")).text()


def _best(connection: sqlite3.Connection, *, maximizes: bool) -> Best | None:
    found = answers.best(connection, maximize=maximizes)
    if found is None:
        return None
    trial_id, value, record = found
    parameters = json.loads(record, parse_constant=lambda _: None)["parameters"]
    return Best(trial_id=trial_id, value=value, parameters=parameters)


def _only_best(found: ParetoSet) -> Best | None:
    """The best trial of an experiment with one objective; None: it has several, or no trial has a result that satisfies
    the constraints."""
    for trial in (one for one in found.trials[:1] if one.is_feasible and len(one.values) == 1):
        [value] = trial.values.values()
        return Best(trial_id=trial.trial_id, value=value, parameters=trial.parameters)
    return None


def _common_failure(connection: sqlite3.Connection) -> CommonFailure | None:
    found = answers.commonest_failure(connection)
    if found is None:
        return None
    trials, trial_id, reason, message, last_words = found
    return CommonFailure(trials=trials, trial_id=trial_id, sentence=reason_in_words(reason, message, last_words))
