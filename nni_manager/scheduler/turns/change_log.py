"""Logs the changes of a turn in the experiment's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.scheduler.experiment_log import write_lines, write_text
from nni_manager.scheduler.planning import decisions as d

log = logging.getLogger("nni_manager.experiment")


def log_changes(
    handles: Sequence[JobHandle], records: Sequence[d.Record], reports: Iterable[tuple[str, Observation]]
) -> None:
    """Logs accepted jobs, the records that matter to users, and the last stderr lines of failed jobs."""
    said = _Said([f"Job {handle.job_name} submitted" for handle in handles])
    for name, report in reports:
        if report.state is JobState.FAILED and report.stderr_tail:
            said.write()
            write_text(log, logging.WARNING, f"job {name} last wrote", report.stderr_tail, "stderr")
    for record in records:
        _log_record(record, said)
        if isinstance(record, d.Finish | d.GiveUpAttempt) and record.disagreement:
            said.warning("disagreement", f"Trial {record.trial_id}: {record.disagreement}")
    said.write()


class _Said:
    """Lines that are written together: several cost little more than one."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def info(self, sentence: str) -> None:
        self._lines.append(sentence)

    def warning(self, action: str, sentence: str, level: int = logging.WARNING) -> None:
        self.write()
        log.log(level, "%s", sentence, extra={"action": action})

    def write(self) -> None:
        """Writes the lines that are not written yet."""
        if self._lines:
            write_lines(log, __file__, self._lines)
            self._lines = []


def _log_record(r: d.Record, said: _Said) -> None:
    match r:
        case d.Finish():
            why = f" ({': '.join(filter(None, (r.reason, r.message)))})" if r.reason or r.message else ""
            said.info(f"Trial {r.trial_id} {r.status}{why}")
        case d.GiveUpAttempt():
            said.warning("attempt_given_up", f"Trial {r.trial_id}: {r.sentence}")
        case d.RequestStop():
            said.info(f"Trial {r.trial_id} asked to stop ({r.by})")
        case d.SetStatus():
            said.info(f"Change experiment status to {r.status}{f': {r.error}' if r.error else ''}")
            if r.status is ExperimentStatus.DONE:
                said.info("Experiment done")
        case d.PutOnHold():
            _log_hold("Experiment", r.hold, said)
        case d.HoldService():
            _log_hold(f"Service {r.service}", r.hold, said)
        case d.MarkUnknown():
            said.warning("unknown", f"Trial {r.trial_id} UNKNOWN: {r.sentence}")


def _log_hold(what: str, hold: Hold | None, said: _Said) -> None:
    if hold is None:
        said.info(f"{what} no longer on hold")
    else:
        said.warning("hold", f"{what} on hold ({hold.code}): {hold.sentence}", logging.ERROR)
