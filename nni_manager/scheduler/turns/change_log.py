"""Logs the changes of a turn in the experiment's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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
        _log_record(record)
        if isinstance(record, d.Finish | d.GiveUpAttempt) and record.disagreement:
            log.warning("Trial %s: %s", record.trial_id, record.disagreement, extra={"action": "disagreement"})


def _log_record(r: d.Record) -> None:
    match r:
        case d.Finish():
            why = f" ({': '.join(filter(None, (r.reason, r.message)))})" if r.reason or r.message else ""
            log.info("Trial %s %s%s", r.trial_id, r.status, why, extra={"action": "trial_ended"})
        case d.GiveUpAttempt():
            log.warning("Trial %s: %s", r.trial_id, r.sentence, extra={"action": "attempt_given_up"})
        case d.RequestStop():
            log.info("Trial %s asked to stop (%s)", r.trial_id, r.by, extra={"action": "asked_to_stop"})
        case d.SetStatus():
            why = f": {r.error}" if r.error else ""
            log.info("Change experiment status to %s%s", r.status, why, extra={"action": "status"})
            if r.status is ExperimentStatus.DONE:
                log.info("Experiment done", extra={"action": "done"})
        case d.PutOnHold():
            log.error("Experiment on hold (%s): %s", r.hold.code, r.hold.sentence, extra={"action": "hold"})
        case d.MarkUnknown():
            log.warning("Trial %s UNKNOWN: %s", r.trial_id, r.sentence, extra={"action": "unknown"})
