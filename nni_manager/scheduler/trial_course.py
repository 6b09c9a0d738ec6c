"""The course of one open trial: it ends, is tried again, stops, is seen to run, or goes on as it was."""

from __future__ import annotations

from nni_manager.domain.evidence import PLATFORM_DEEDS, UNHEARD, Finding, RunnerWord, weigh
from nni_manager.domain.job import JobHandle, JobReport, JobState
from nni_manager.domain.trial import PLATFORM_RETRIES, Outcome, Reason, StopRequest, TrialStatus, explain, outcome
from nni_manager.scheduler.decisions import (
    AskStop,
    Cancel,
    Decisions,
    Finish,
    Forget,
    GiveUpAttempt,
    LoseSight,
    StartTrial,
)
from nni_manager.scheduler.snapshot import Snapshot
from nni_manager.store import jobs
from nni_manager.store.jobs import AttemptRow
from nni_manager.store.trials import OpenTrial
from trial_runner import protocol

#: A trial whose platform cannot be asked for so long becomes UNKNOWN.
UNKNOWN_AFTER_MS = 30_000
#: Ends after which a runner has a last word.
_SPOKEN_ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED})


def follow(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    """Adds to `decisions` what should happen to the trial now; at most one `Finish` or `GiveUpAttempt`."""
    job = trial.job
    if job is None:
        _follow_waiting(snapshot, trial, decisions)
    elif (finding := _finding(snapshot, trial, job, decisions)) is not None:
        _settle(snapshot, trial, job, finding, decisions)
    else:
        _follow_state(snapshot, trial, job, decisions)
        if trial.asked is not None or snapshot.is_stopping or _ran_too_long(snapshot, trial, decisions):
            _stop(snapshot, trial, job, decisions)


def _follow_waiting(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    asked = trial.asked or (StopRequest.EXPERIMENT_STOPPED if snapshot.is_stopping else None)
    if asked is None:
        return
    never_ran = JobReport(state=JobState.CANCELLED, message="it had not been submitted")
    verdict = outcome(never_ran, asked, platform_retries=0, user_retries=0)
    _finish(snapshot, trial, verdict, Finding(report=never_ran), decisions)


# Its attempt has ended


def _finding(snapshot: Snapshot, trial: OpenTrial, job: AttemptRow, decisions: Decisions) -> Finding | None:
    """What platform and runner say of the attempt's end, once it is worth deciding on."""
    platform = _platform_end(job)
    runner = RunnerWord.parse(job.runner_exit) if job.runner_exit is not None else None
    if platform is None and (runner is None or job.handle is None):
        return None  # nothing could be forgotten of a job that its platform has not said it took; it is being asked
    since_ms = _waits_since(snapshot, trial, job, platform, runner)
    if since_ms is not None:
        until_ms = since_ms + round(snapshot.spec.metric_grace_s * 1000)
        if snapshot.here.now_ms < until_ms:
            decisions.wake_at(until_ms)
            return None
    if runner is None and _had_a_runner(job) and job.state == JobState.SUCCEEDED and platform is not None:
        return Finding(report=platform, doubt=UNHEARD)
    return weigh(platform, runner)


def _had_a_runner(job: AttemptRow) -> bool:
    return job.channel in (protocol.PUSH, protocol.PULL)


def _platform_end(job: AttemptRow) -> JobReport | None:
    """What the platform says of an end; None while it says nothing of one."""
    if job.state == jobs.INTENT or not JobState(job.state).is_final:
        return None
    return JobReport(
        state=JobState(job.state), exit_code=job.exit_code, signal=job.signal, reason=job.reason, message=job.message,
        stderr_tail=job.stderr_tail, started_ms=job.started_ms, ended_ms=job.ended_ms,
    )  # fmt: skip


def _waits_since(
    snapshot: Snapshot, trial: OpenTrial, job: AttemptRow, platform: JobReport | None, runner: RunnerWord | None
) -> int | None:
    """Since when something is expected that would complete the picture; None: nothing is.

    After the runner's word, its last results, and the platform's word when the command was ended by a signal that
    nobody here sent. After the platform's word alone, the runner's; where the platform ended the job itself there may
    be none, but results that are on their way, of which one may be final.
    """
    if runner is not None:
        unexplained = runner.signal is not None and platform is None and trial.asked is None
        is_complete = job.job_name in snapshot.drained and not unexplained
        return None if is_complete else job.runner_exit_ms
    if platform is None or not _had_a_runner(job):
        return None
    is_asked = trial.asked is not None or snapshot.is_stopping
    waits_for = _SPOKEN_ENDS if is_asked else _SPOKEN_ENDS | PLATFORM_DEEDS
    return job.final_seen_ms if platform.state in waits_for else None


def _settle(snapshot: Snapshot, trial: OpenTrial, job: AttemptRow, finding: Finding, decisions: Decisions) -> None:
    by_platform, by_user = snapshot.retries.get(trial.id, (0, 0))
    verdict = outcome(
        finding.report,
        trial.asked,
        platform_retries=PLATFORM_RETRIES - by_platform,
        user_retries=snapshot.spec.max_trial_retries - by_user,
        has_final=trial.has_final,
    )
    if verdict.status is TrialStatus.WAITING:
        _give_up(snapshot, trial, verdict, finding, decisions)
    else:
        if trial.started_ms is None and job.started_ms is not None:  # its start and its end are seen together
            decisions.records.append(StartTrial(trial_id=trial.id, started_ms=job.started_ms))
        _finish(snapshot, trial, verdict, finding, decisions)
    if job.handle is not None:
        word = job.runner_exit if _platform_end(job) is None else None
        decisions.calls.append(Forget(handle=_handle(job), runner_word=word or ""))


def _give_up(snapshot: Snapshot, trial: OpenTrial, verdict: Outcome, finding: Finding, decisions: Decisions) -> None:
    platform = verdict.reason in (Reason.LOST, Reason.PREEMPTED)
    account = jobs.PLATFORM if platform else jobs.USER_CODE
    ended = f"attempt {trial.attempt} ended ({verdict.reason}: {explain(finding.report)})"
    record = GiveUpAttempt(
        trial_id=trial.id, attempt=trial.attempt, account=account, disagreement=finding.disagreement,
        sentence=f"{ended}; the next one waits for a slot",
    )  # fmt: skip
    decisions.records.append(record)
    decisions.wake_at(snapshot.here.now_ms)


def _finish(snapshot: Snapshot, trial: OpenTrial, verdict: Outcome, finding: Finding, decisions: Decisions) -> None:
    report, succeeded = finding.report, verdict.status is TrialStatus.SUCCEEDED
    message = verdict.message or (finding.doubt if succeeded else explain(report, trial.asked))
    record = Finish(
        trial_id=trial.id, attempt=trial.attempt, status=verdict.status, reason=verdict.reason,
        message="; ".join(filter(None, (message, trial.doubt))),
        ended_ms=report.ended_ms or snapshot.here.now_ms, disagreement=finding.disagreement or finding.doubt,
    )  # fmt: skip
    decisions.records.append(record)


# Its attempt has not ended


def _follow_state(snapshot: Snapshot, trial: OpenTrial, job: AttemptRow, decisions: Decisions) -> None:
    here = snapshot.here
    since = here.unreachable_since_ms
    if since is None:
        if job.state == JobState.RUNNING and trial.status is not TrialStatus.RUNNING:
            _start(snapshot, trial, job.started_ms or here.now_ms, decisions)
    elif here.now_ms - since < UNKNOWN_AFTER_MS:
        decisions.wake_at(since + UNKNOWN_AFTER_MS)
    elif trial.status is TrialStatus.RUNNING:
        sentence = f"the platform cannot be asked: {here.platform_trouble}"
        decisions.records.append(LoseSight(trial_id=trial.id, sentence=sentence))


def _start(snapshot: Snapshot, trial: OpenTrial, started_ms: int, decisions: Decisions) -> None:
    decisions.records.append(StartTrial(trial_id=trial.id, started_ms=started_ms))
    if snapshot.spec.max_trial_duration_s is not None:
        decisions.wake_at(started_ms + snapshot.spec.max_trial_duration_s * 1000)


def _ran_too_long(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> bool:
    """Asks a trial over `maxTrialDuration` to stop."""
    limit = snapshot.spec.max_trial_duration_s
    if limit is None or trial.started_ms is None:
        return False
    deadline = trial.started_ms + limit * 1000
    if snapshot.here.now_ms < deadline:
        decisions.wake_at(deadline)
        return False
    decisions.records.append(AskStop(trial_id=trial.id, by=StopRequest.TIMEOUT))
    return True


def _stop(snapshot: Snapshot, trial: OpenTrial, job: AttemptRow, decisions: Decisions) -> None:
    if trial.asked is None and snapshot.is_stopping:
        decisions.records.append(AskStop(trial_id=trial.id, by=StopRequest.EXPERIMENT_STOPPED))
    if job.handle is not None and job.job_name not in snapshot.here.cancelled:
        decisions.calls.append(Cancel(handle=_handle(job)))


def _handle(job: AttemptRow) -> JobHandle:
    assert job.handle is not None
    return jobs.parse_handle(job.job_name, job.handle)
