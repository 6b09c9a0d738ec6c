"""Overview of one experiment: the data of the API's description and of its page."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.experiment import ExperimentWarning, Hold, HoldCode, StoredExperiment
from nni_manager.domain.results import direction, result_advice
from nni_manager.domain.results.final_result import MAX_UNUSABLE, Usability
from nni_manager.domain.service import LiveService
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store import stored_config
from nni_manager.store.experiment import experiments, trial_warnings, trials
from nni_manager.store.index import list_summary, service_summary, waiting_for
from nni_manager.store.index.list_summary import Best, ListSummary
from nni_manager.store.index.service_summary import ServiceSummary
from nni_manager.store.index.waiting_for import WaitingFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """State of an experiment that is only in the daemon's memory."""

    #: Whether its loop runs.
    at_work: bool
    #: An unstored hold: it ends automatically, or the experiment cannot be opened.
    derived_hold: Hold | None
    #: Another problem, such as one of its endpoint; empty: none.
    problem: str
    #: Warnings of the daemon.
    warnings: tuple[ExperimentWarning, ...] = ()
    #: Its training services, while its loop runs.
    services: tuple[LiveService, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Stored state and live state combined."""

    row: StoredExperiment
    #: Canonical; secrets included: never log it, mask it before it leaves.
    config: Mapping[str, Any] = field(repr=False)
    hold: Hold | None
    #: Sentences about why the experiment is stopped or held.
    errors: tuple[str, ...]
    #: Warnings, those of its file first.
    warnings: tuple[ExperimentWarning, ...]
    #: Milliseconds of activity.
    exec_ms: int
    summary: ListSummary
    #: In config order; removed ones last.
    services: tuple[ServiceSummary, ...]
    #: What it waits for; None: it is not running, or makes progress.
    waits_for: WaitingFor | None

    @property
    def counts(self) -> Mapping[str, int]:
        """Trials by status, without zeros."""
        return self.summary.counts

    @property
    def best(self) -> Best | None:
        return self.summary.best

    @property
    def platform(self) -> str:
        """Platform names, joined by commas."""
        return stored_config.platform(self.config)


def load(connection: sqlite3.Connection, live: Live, now_ms: int) -> Overview:
    """Loads the overview of an experiment. `now_ms`: for the time of activity."""
    row = experiments.load(connection)
    config = stored_config.read(row.config, experiments.path_of(connection))
    found = service_summary.summaries(connection, config, live.services)
    summary = list_summary.load(connection, config, row.class_direction)
    return Overview(
        row=row,
        config=config,
        hold=hold(row, live),
        errors=errors(row, live),
        warnings=(
            *experiments.warnings(connection),
            *_directions(row, config),
            *_without_usable_result(connection, row, config, summary),
            *trial_warnings.load(connection),
            *_was_on_hold(row, live),
            *live.warnings,
        ),
        exec_ms=exec_ms(row, live, now_ms),
        summary=summary,
        services=found,
        waits_for=waiting_for.load(connection, found) if live.at_work else None,
    )


def hold(row: StoredExperiment, live: Live) -> Hold | None:
    """The hold of an experiment; a stored one counts only while its loop runs."""
    return (row.hold or live.derived_hold) if live.at_work else live.derived_hold


def _directions(row: StoredExperiment, config: Mapping[str, Any]) -> Iterator[ExperimentWarning]:
    return (warning.told for warning in direction.warnings(config, row.class_direction))


def _without_usable_result(
    connection: sqlite3.Connection, row: StoredExperiment, config: Mapping[str, Any], summary: ListSummary
) -> Iterator[ExperimentWarning]:
    """A warning, unless a hold covers it: the results are NaN or infinite, or the tuner ignores them."""
    most = config.get("maxUnusableResults", MAX_UNUSABLE)
    has_best = summary.best is not None or (summary.pareto_set is not None and summary.pareto_set.size > 0)
    is_held = row.hold is not None and row.hold.code is HoldCode.NO_USABLE_RESULT
    if has_best or is_held or not most or summary.counts.get(TrialStatus.SUCCEEDED, 0) < most:
        return
    last = trials.last_reported(connection)
    if last is not None and last.usability(config.get("objectives") or {}) is not Usability.USABLE:
        advice = result_advice.advice(last, config, row.class_direction)
        sentence = f"no trial that succeeded has a usable result: {advice}"
        yield ExperimentWarning(code="NO_USABLE_RESULT", message=sentence)


def _was_on_hold(row: StoredExperiment, live: Live) -> Iterator[ExperimentWarning]:
    if row.hold is not None and not live.at_work:
        sentence = f"it was on hold when it was closed: {row.hold.sentence}"
        yield ExperimentWarning(code="WAS_ON_HOLD", message=sentence)


def errors(row: StoredExperiment, live: Live) -> tuple[str, ...]:
    """Sentences about why the experiment is stopped or held."""
    held = hold(row, live)
    return tuple(filter(None, (row.error, held.sentence if held else "", live.problem)))


def exec_ms(row: StoredExperiment, live: Live, now_ms: int) -> int:
    """Milliseconds of activity up to now."""
    since = max(0, now_ms - row.counted_ms) if live.at_work and row.is_counting else 0
    return row.exec_ms + since
