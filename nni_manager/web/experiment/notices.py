"""What the head of an experiment's pages says of it, the most serious first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode
from nni_manager.domain.service import ServiceStatus
from nni_manager.domain.trial import FAILED_STATUSES
from nni_manager.store.index.overview import Overview
from nni_manager.web.experiment.progress import Progress

#: Holds that end by themselves.
_WAITS = frozenset({HoldCode.TUNER_SILENT, HoldCode.PLATFORM_UNAVAILABLE, HoldCode.STORE_UNAVAILABLE})
#: Warnings of what soon stops everything.
_URGENT = frozenset({"DISK_LOW"})
#: Trials that must have ended before their failures are told of.
_FEW = 5


class Level(IntEnum):
    """How serious a notice is; the name is its class in the style sheet."""

    #: A person must act.
    ACT = 0
    #: It waits, and goes on by itself.
    WAIT = 1
    #: For information.
    INFO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: Level
    sentence: str
    #: What to do; empty: nothing, or the sentence says it.
    step: str = ""
    #: Last part of the path of the page that shows more; empty: none.
    page: str = ""
    code: str = ""
    #: Traceback or stack; empty: none.
    details: str = ""


def of(found: Overview, status: ExperimentStatus, now: Progress, no_more_trials: str) -> list[Notice]:
    """The notices about an experiment, the most serious first."""
    notices = [
        *_holds(found.hold),
        *_errors(found),
        *_services(found),
        *_failures(found, now),
        *_standstill(found, status, now),
        *(_warning(one) for one in found.warnings),
    ]
    if no_more_trials:
        step = "raise the limit to go on" if status.is_active or status is ExperimentStatus.DONE else ""
        step = step if "is reached" in no_more_trials else ""
        notices.append(Notice(level=Level.INFO, sentence=f"no more trials are made: {no_more_trials}", step=step))
    return sorted(notices, key=lambda notice: notice.level)


def _warning(one: ExperimentWarning) -> Notice:
    level = Level.ACT if one.code in _URGENT else Level.INFO
    return Notice(level=level, sentence=one.message, code=one.code)


def _holds(hold: Hold | None) -> Iterator[Notice]:
    if hold is None:
        return
    waits = hold.code in _WAITS
    step = "it goes on by itself" if waits else "mend the cause, then press Resume"
    level = Level.WAIT if waits else Level.ACT
    yield Notice(level=level, sentence=f"on hold: {hold.sentence}", step=step, code=hold.code, details=hold.details)


def _errors(found: Overview) -> Iterator[Notice]:
    for sentence in found.errors:
        if found.hold is None or sentence != found.hold.sentence:
            is_error = found.row.status is ExperimentStatus.ERROR and sentence == found.row.error
            step = "mend the cause, then press Resume" if is_error else ""
            yield Notice(level=Level.ACT, sentence=sentence, step=step, page="log")


def _services(found: Overview) -> Iterator[Notice]:
    for service in found.services:
        if service.status is ServiceStatus.AWAY:
            sentence = f"{service.name} is away: {service.sentence}"
            yield Notice(level=Level.WAIT, sentence=sentence, step="its trials go on when it answers again")
        elif service.status is ServiceStatus.ON_HOLD and not found.hold:
            sentence = f"{service.name} is on hold: {service.sentence}"
            yield Notice(level=Level.ACT, sentence=sentence, step="mend the cause, then press Resume")


def _failures(found: Overview, now: Progress) -> Iterator[Notice]:
    failed, common = sum(found.counts.get(status, 0) for status in FAILED_STATUSES), found.summary.common_failure
    if not failed or common is None:
        return
    alike = f", {common.trials} of them alike" if failed > 1 else ""
    sentence = f"{failed} of {now.ended} trials failed{alike}: {common.sentence}"
    level = Level.ACT if now.ended >= _FEW and 2 * failed > now.ended else Level.INFO
    yield Notice(level=level, sentence=sentence, page="failures")


def _standstill(found: Overview, status: ExperimentStatus, now: Progress) -> Iterator[Notice]:
    if status.is_active and not found.hold and not now.running and now.waiting.trials:
        sentence = f"no trial runs, and {now.waiting.alike} of {now.waiting.trials} wait: {now.waiting.sentence}"
        yield Notice(level=Level.WAIT, sentence=sentence, page="trials?status=WAITING")
