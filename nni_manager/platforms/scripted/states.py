"""The script: a job's rule, the times it implies, and the cluster's report on the job at a moment. Pure.

The states of its jobs:

==========  =====================================================
state       when
==========  =====================================================
PENDING     accepted; `delay` has not passed, or it has not started
RUNNING     afterwards
SUCCEEDED   ended with exit code 0
FAILED      ended with another one, or by a signal; `timedOut`
CANCELLED   ended on request, by the manager or `cancelledByPerson`
PREEMPTED   `preempted`
LOST        `lost`, or the job is unknown
==========  =====================================================
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platforms.scripted.config import Match, Rule
from nni_manager.platforms.scripted.jobs import Job
from trial_runner import protocol

#: Default duration of a simulated job, in seconds.
DEFAULT_DURATION_S = 1.0
NONE, PROCESS, EXTERNAL = "none", "process", "external"


def rule_for(rules: Sequence[Rule], spec: JobSpec) -> Rule:
    """The first rule that matches a job, or else an empty rule."""
    return next((rule for rule in rules if rule.match is None or _fits(rule.match, spec)), Rule())


def _fits(match: Match, spec: JobSpec) -> bool:
    return (
        match.sequence in (None, spec.sequence_id)
        and match.attempt in (None, spec.attempt)
        and (match.every is None or (spec.sequence_id + 1) % match.every == 0)
    )


def run_of(job: Job, now_ms: int) -> str:
    """The container id of the job's present run, if the platform runs the job twice; otherwise empty."""
    if job.rule.requeue is None:
        return ""
    is_second = now_ms >= job.starts_ms + round(job.rule.requeue * 1000)
    return protocol.container_of_run(number_of(job.name), int(is_second))


def number_of(job_name: str) -> int:
    """The platform's number of a job."""
    return zlib.crc32(job_name.encode())


def is_overlooked(job: Job, now_ms: int) -> bool:
    """Whether the platform's list lacks the job now."""
    span = job.rule.overlooked
    if span is None:
        return False
    passed_s = (now_ms - job.submitted_ms) / 1000 - span.after
    return passed_s >= 0 and (span.for_ is None or passed_s < span.for_)


def is_platform_end(rule: Rule) -> bool:
    """Whether the platform itself ends the job."""
    return rule.lost or rule.preempted or rule.cancelled_by_person or rule.timed_out


def says_exit(rule: Rule) -> bool:
    return rule.exit_code is not None or rule.signal is not None


def end_after_s(rule: Rule, launch: str) -> float | None:
    """Seconds after its start at which the script ends a job; None: its process ends it."""
    if launch == NONE:
        return DEFAULT_DURATION_S if rule.duration is None else rule.duration
    if is_platform_end(rule):
        return rule.duration or 0.0
    return rule.duration if says_exit(rule) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that a simulated job reports, and its time after the start in milliseconds."""

    after_ms: int
    text: str


def lines(rule: Rule) -> tuple[Line, ...]:
    """The lines that a job reports: intermediate results evenly over the duration, the final one at its end."""
    duration_ms = round((end_after_s(rule, NONE) or 0.0) * 1000)
    step = duration_ms / (len(rule.results) + 1)
    found = [
        Line(after_ms=round(step * (place + 1)), text=json.dumps({"type": "intermediate", "value": value}))
        for place, value in enumerate(rule.results)
    ]
    if rule.result is not None:
        found.append(Line(after_ms=duration_ms, text=json.dumps({"type": "final", "value": rule.result})))
    return tuple(found)


#: Values of a rule's `reason` with a special meaning.
_CAUSES = {"OOMKilled": Reason.OUT_OF_MEMORY}
UNHEARD_OF = Observation(state=JobState.LOST, message="the scripted cluster does not know this job")
#: Seconds after its grace period at which a cancelled container counts as ended.
_STOP_MARGIN_S = 15.0


def job_report(job: Job, launch: str, process: Observation | None, now_ms: int) -> Observation:
    """The cluster's report on `job` at `now_ms`. `process`: the keeper's report; None: it has none."""
    if launch == PROCESS and process is None:
        return UNHEARD_OF
    past = [end for end in _ends(job, launch, process) if (end.ended_ms or 0) <= now_ms]
    if past:
        return min(past, key=lambda end: end.ended_ms or 0)
    if launch == EXTERNAL or now_ms < job.starts_ms:
        return Observation(state=JobState.PENDING, wait=_pending_reason(job, now_ms))
    return Observation(state=JobState.RUNNING, started_ms=job.starts_ms)


def next_change_ms(job: Job, launch: str, process: Observation | None, now_ms: int) -> int | None:
    """The time of the next change of a job, if known; None: unknown."""
    ends = [end.ended_ms or 0 for end in _ends(job, launch, process)]
    reasons = [job.submitted_ms + round(pending.after * 1000) for pending in job.rule.pending_reason]
    return min((moment for moment in (job.starts_ms, *reasons, *ends) if moment > now_ms), default=None)


def _pending_reason(job: Job, now_ms: int) -> Wait | None:
    """The last reason for waiting that is due."""
    waited_s = (now_ms - job.submitted_ms) / 1000
    due = [pending for pending in job.rule.pending_reason if pending.after <= waited_s]
    if not due:
        return None
    return Wait(code=WaitCode(due[-1].code), sentence=due[-1].sentence, is_hopeless=due[-1].hopeless)


def _ends(job: Job, launch: str, process: Observation | None) -> Iterator[Observation]:
    """All past and future ends of a job; the earliest counts."""
    after_s = end_after_s(job.rule, launch)
    if after_s is not None:
        yield _scripted(job.rule, job.starts_ms, job.starts_ms + round(after_s * 1000))
    if job.cancelled_ms is not None and launch != PROCESS:
        wait_s = 0 if launch == NONE or job.cancelled_unstarted else job.grace_s + _STOP_MARGIN_S
        yield _end(JobState.CANCELLED, job.starts_ms, job.cancelled_ms + round(wait_s * 1000), "cancelled on request")
    if process is not None and process.state.is_final:
        yield _process_end(job, process)


def _scripted(rule: Rule, started_ms: int, ended_ms: int) -> Observation:
    if is_platform_end(rule):
        state, message = _PLATFORM_ENDS[(rule.lost, rule.preempted, rule.cancelled_by_person)]
        found = _end(state, started_ms, ended_ms, message, rule.reason)
        cause = Reason.TIMEOUT if rule.timed_out else None
        return replace(found, cause=cause, is_uncounted=rule.uncounted and rule.preempted)
    exit_code = 0 if not says_exit(rule) else rule.exit_code
    tail = "" if exit_code == 0 else rule.stderr
    return _exited(exit_code, rule.signal, started_ms, ended_ms, reason=rule.reason, stderr_tail=tail)


_PLATFORM_ENDS = {
    (True, False, False): (JobState.LOST, "the scripted cluster has forgotten this job"),
    (False, True, False): (JobState.PREEMPTED, "the scripted cluster gave the job's place to another"),
    (False, False, True): (JobState.CANCELLED, "the job was cancelled in the scripted cluster"),
    (False, False, False): (
        JobState.FAILED,
        "the time limit of the scripted cluster ended the job; remove timedOut from its rule",
    ),
}


def _process_end(job: Job, process: Observation) -> Observation:
    ended_ms, exit_code, signal = process.ended_ms or 0, process.exit_code, process.signal
    if process.state is JobState.LOST:
        message = "the machine's keeper no longer knows this job's exit code"
        return _end(JobState.LOST, job.starts_ms, ended_ms, message)
    if job.cancelled_ms is not None and job.cancelled_ms <= ended_ms and exit_code != 0:
        return _end(JobState.CANCELLED, job.starts_ms, ended_ms, "cancelled on request")
    if says_exit(job.rule):
        exit_code, signal = job.rule.exit_code, job.rule.signal
    tail = process.stderr_tail
    return _exited(exit_code, signal, job.starts_ms, ended_ms, reason=job.rule.reason, stderr_tail=tail)


def _exited(
    exit_code: int | None, signal: int | None, started_ms: int, ended_ms: int, reason: str = "", stderr_tail: str = ""
) -> Observation:
    return Observation(
        state=JobState.SUCCEEDED if exit_code == 0 else JobState.FAILED,
        exit_code=exit_code,
        signal=signal,
        started_ms=started_ms,
        ended_ms=ended_ms,
        native_reason=reason,
        cause=_CAUSES.get(reason),
        stderr_tail=stderr_tail,
    )


def _end(state: JobState, started_ms: int, ended_ms: int, message: str, reason: str = "") -> Observation:
    return Observation(state=state, started_ms=started_ms, ended_ms=ended_ms, native_reason=reason, message=message)
