"""Logs the changes of a turn in the experiment's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.scheduler.experiment_log import write_text
from nni_manager.scheduler.planning import decisions as d

log = logging.getLogger("nni_manager.experiment")


def log_changes(
    handles: Sequence[JobHandle], records: Sequence[d.Record], reports: Iterable[tuple[str, Observation]]
) -> None:
    """Logs accepted jobs, the records that matter to users, and the last stderr lines of failed jobs."""
    for handle in handles:
        log.info("Job %s submitted", handle.job_name, extra={"action": "submitted"})
    for name, report in reports:
        if report.state is JobState.FAILED and report.stderr_tail:
            write_text(log, logging.WARNING, f"job {name} wrote at last", report.stderr_tail, "stderr")
    for record in records:
        line = _LINES.get(type(record))
        if line is not None:
            line(record)


def _finish(r: d.Finish) -> None:
    why = f" ({': '.join(filter(None, (r.reason, r.message)))})" if r.reason or r.message else ""
    log.info("Trial %s %s%s", r.trial_id, r.status, why, extra={"action": "trial_ended"})
    _disagreement(r)


def _give_up(r: d.GiveUpAttempt) -> None:
    log.warning("Trial %s: %s", r.trial_id, r.sentence, extra={"action": "attempt_given_up"})
    _disagreement(r)


def _disagreement(r: d.Finish | d.GiveUpAttempt) -> None:
    if r.disagreement:
        log.warning("Trial %s: %s", r.trial_id, r.disagreement, extra={"action": "disagreement"})


def _request_stop(r: d.RequestStop) -> None:
    log.info("Trial %s asked to stop (%s)", r.trial_id, r.by, extra={"action": "asked_to_stop"})


def _status(r: d.SetStatus) -> None:
    log.info(
        "Change experiment status to %s%s", r.status, f": {r.error}" if r.error else "", extra={"action": "status"}
    )
    if r.status is ExperimentStatus.DONE:
        log.info("Experiment done", extra={"action": "done"})


def _hold(r: d.PutOnHold) -> None:
    log.error("Experiment on hold (%s): %s", r.hold.code, r.hold.sentence, extra={"action": "hold"})


def _mark_unknown(r: d.MarkUnknown) -> None:
    log.warning("Trial %s UNKNOWN: %s", r.trial_id, r.sentence, extra={"action": "unknown"})


_LINES: dict[type, Callable[[Any], None]] = {
    d.Finish: _finish,
    d.GiveUpAttempt: _give_up,
    d.RequestStop: _request_stop,
    d.SetStatus: _status,
    d.PutOnHold: _hold,
    d.MarkUnknown: _mark_unknown,
}
