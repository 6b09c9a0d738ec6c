"""Decisions about one open trial: it ends, is retried, is stopped, runs, or stays as it is."""

from __future__ import annotations

from dataclasses import replace

from nni_manager.domain.attempt import MAY_STILL_RUN, PLATFORM, UNCOUNTED, USER_CODE, Attempt, Observation
from nni_manager.domain.evidence import (
    NEVER_HEARD,
    PLATFORM_CAUSED,
    UNHEARD,
    AttemptEnd,
    RunnerExit,
    missing_results,
    unstarted,
    weigh,
)
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import (
    PLATFORM_FAILURES,
    OpenTrial,
    Outcome,
    StopRequest,
    cause_line,
    explain,
    failure_key,
    ignored_finals,
    outcome,
)
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.planning.decisions import (
    Cancel,
    Decisions,
    Finish,
    Forget,
    GiveUpAttempt,
    MarkLost,
    MarkUnknown,
    RequestStop,
    StartTrial,
)
from nni_manager.scheduler.planning.missed_attempts import forget_missed, handle_missed
from nni_manager.scheduler.planning.snapshot import ServiceView, Snapshot
from trial_runner import protocol

#: Milliseconds after which a trial is UNKNOWN: its platform is unreachable, or its runner silent if it is the only
#: source.
UNKNOWN_AFTER_MS = 30_000
#: Milliseconds of silence after which such a trial is LOST; its runner gives up after the same time.
LOST_AFTER_MS = 600_000
#: Factor on `metricGrace` for results of a successful job read from storage: network file systems cache folders and
#: sizes for a minute or more; twelve times the default is 2 minutes.
STORAGE_PATIENCE = 12
#: Factor on `metricGrace` for the report of a service on a command that a signal from elsewhere ended: the service is
#: polled, and a preempted job may take half a minute to end.
PORTAL_PATIENCE = 12
#: Maximum difference in milliseconds between two reports of one start.
_OTHER_START_MS = 1_000
#: Exit codes of a shell after SIGINT, SIGKILL and SIGTERM.
_STOPPED_CODES = (130, 137, 143)
#: Milliseconds after which a trial of a stopping experiment, or on a removed service, is closed even if the service or
#: the job's machine is unreachable.
_STOP_AWAY_MS = 5_000
_STOP_UNREACHABLE_MS = 8_000


def decide_trial(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    """Adds the decisions about the trial; at most one `Finish` or `GiveUpAttempt`."""
    job = trial.job
    if handle_missed(snapshot, trial, decisions):
        return
    if job is None:
        _follow_waiting(snapshot, trial, decisions)
    elif (finding := _finding(snapshot, trial, job, decisions)) is not None:
        _settle(snapshot, trial, job, finding, decisions)
    elif (may_run := _out_of_reach(snapshot, trial, job, decisions)) is not None:
        verdict = _STOPPED_AWAY
        if not snapshot.is_stopping:  # as if the service had ended the job on request
            verdict = outcome(Observation(state=JobState.CANCELLED), trial.asked, platform_retries=0, user_retries=0)
        _finish(snapshot, trial, verdict, AttemptEnd(report=may_run), decisions, may_run=True)
        if job.handle is not None:
            decisions.calls.append(Forget(handle=job.job_handle, service=job.service))
    else:
        _follow_state(snapshot, trial, job, decisions)
        if trial.asked is not None or snapshot.is_stopping or _ran_too_long(snapshot, trial, job, decisions):
            if trial.asked is None and snapshot.is_stopping:
                decisions.records.append(RequestStop(trial_id=trial.id, by=StopRequest.EXPERIMENT_STOPPED))
            if job.handle is not None and job.job_name not in snapshot.here.cancelled:
                decisions.calls.append(Cancel(handle=job.job_handle, service=job.service))


def _follow_waiting(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    asked = trial.asked or (StopRequest.EXPERIMENT_STOPPED if snapshot.is_stopping else None)
    if asked is None:
        return
    never_ran = Observation(state=JobState.CANCELLED, message="it had not been submitted")
    verdict = outcome(never_ran, asked, platform_retries=0, user_retries=0)
    _finish(snapshot, trial, verdict, AttemptEnd(report=never_ran), decisions)


# Ended attempts


def _finding(snapshot: Snapshot, trial: OpenTrial, job: Attempt, decisions: Decisions) -> AttemptEnd | None:
    """The attempt's end by the reports of platform and runner; None: no end yet, or more reports are awaited."""
    service = snapshot.service(job.service)
    platform = job.end or _lost_sight_of(snapshot, service, job, decisions)
    runner = RunnerExit.parse(job.runner_exit) if job.runner_exit is not None else None
    if platform is None and runner is None and job.handle is not None:
        return _silent(snapshot, job)
    if platform is None and (runner is None or job.handle is None):
        return None  # without a handle the job cannot be forgotten; it is being submitted again
    if platform is None and service.state.capabilities.platform_decides:
        return None  # the platform may restart the command
    has_portal = service.state.capabilities.has_portal
    unexplained = platform is None and runner is not None and _is_unexplained(trial, runner, has_portal=has_portal)
    since_ms = _waits_since(snapshot, trial, job, platform, runner, unexplained=unexplained)
    if since_ms is not None:
        factor = PORTAL_PATIENCE if unexplained and has_portal else 1
        until_ms = since_ms + round(factor * _patience_s(snapshot, job, platform, runner) * 1000)
        if snapshot.here.now_ms < until_ms:
            decisions.wake_at(until_ms)
            return None
    if runner is None and platform is not None and service.state.capabilities.expects_runner and not _had_a_runner(job):
        platform = unstarted(platform)
    finding = weigh(platform, runner)
    if finding is None:
        return None
    doubts = filter(None, (finding.doubt, _doubt(snapshot, job, finding.report, runner)))
    return replace(finding, doubt="; ".join(doubts))


def _patience_s(snapshot: Snapshot, job: Attempt, platform: Observation | None, runner: RunnerExit | None) -> float:
    """Seconds to wait for missing reports and results; longer for a successful job with results in storage."""
    word = runner.report() if runner is not None else platform
    is_read = snapshot.service(job.service).state.capabilities.is_read
    may_lag = job.channel == protocol.PULL or (is_read and not job.channel)
    is_success = word is not None and word.state is JobState.SUCCEEDED
    return snapshot.spec.metric_grace_s * (STORAGE_PATIENCE if may_lag and is_success else 1)


def _doubt(snapshot: Snapshot, job: Attempt, report: Observation, runner: RunnerExit | None) -> str:
    """Why results of an attempt may be missing; empty: no reason."""
    found = [job.doubt]
    if runner is not None:
        if missing := snapshot.stored.missing.get(job.job_name):
            found.append(missing_results(missing))
        found.append(runner.doubts)
    elif report.state is JobState.SUCCEEDED:
        if _had_a_runner(job):
            found.append(UNHEARD)
        elif snapshot.service(job.service).state.capabilities.expects_runner:
            found.append(NEVER_HEARD)
    return "; ".join(filter(None, found))


def _silent(snapshot: Snapshot, job: Attempt) -> AttemptEnd | None:
    """The end LOST of a job with the runner as only source, after a long silence; None: no such silence."""
    silence_ms = snapshot.here.silence_ms(job)
    if silence_ms is None or silence_ms < LOST_AFTER_MS:
        return None
    message = (
        f"its runner did not report for {LOST_AFTER_MS // 60_000} minutes, and no other source shows whether it runs"
    )
    return AttemptEnd(report=Observation(state=JobState.LOST, message=message))


def _had_a_runner(job: Attempt) -> bool:
    return job.channel in (protocol.PUSH, protocol.PULL, protocol.EXEC)


def _lost_sight_of(snapshot: Snapshot, service: ServiceView, job: Attempt, decisions: Decisions) -> Observation | None:
    """LOST for a job that was unreachable for longer than its service allows; else None."""
    grace_s = service.state.capabilities.unreachable_grace_s
    if job.unreachable_ms is None or grace_s is None:
        return None
    until_ms = job.unreachable_ms + round(grace_s * 1000)
    if snapshot.here.now_ms < until_ms:
        decisions.wake_at(until_ms)
        return None
    message = f"not reachable for {grace_s:.0f} s: {job.unreachable}"
    return Observation(state=JobState.LOST, message=message, started_ms=job.started_ms)


def _waits_since(
    snapshot: Snapshot,
    trial: OpenTrial,
    job: Attempt,
    platform: Observation | None,
    runner: RunnerExit | None,
    *,
    unexplained: bool,
) -> int | None:
    """Start of the wait for a report that completes the end, in milliseconds; None: no report is awaited.

    After the runner's exit report: its last results, and the platform's report if the command ended by a signal from
    elsewhere, perhaps from the platform's portal. After the platform's report alone: the runner's; if the platform
    ended the job itself: results on their way, possibly a final one.
    """
    if runner is not None:
        is_complete = snapshot.stored.is_drained(job.job_name) and not unexplained
        return None if is_complete else job.runner_exit_ms
    if platform is None or not _may_be_heard(snapshot, trial, job, platform):
        return None
    return job.final_seen_ms


def _is_unexplained(trial: OpenTrial, runner: RunnerExit, *, has_portal: bool) -> bool:
    """Whether a signal from elsewhere ended the command."""
    was_stopped = runner.signal is not None or (has_portal and runner.exit_code in _STOPPED_CODES)
    return was_stopped and trial.asked is None


def _may_be_heard(snapshot: Snapshot, trial: OpenTrial, job: Attempt, platform: Observation) -> bool:
    if platform.state is JobState.SUCCEEDED:
        return _had_a_runner(job) or snapshot.service(job.service).state.capabilities.expects_runner
    is_asked = trial.asked is not None or snapshot.is_stopping
    has_more = platform.state is JobState.FAILED or (platform.state in PLATFORM_CAUSED and not is_asked)
    return has_more and _had_a_runner(job)


def _settle(snapshot: Snapshot, trial: OpenTrial, job: Attempt, finding: AttemptEnd, decisions: Decisions) -> None:
    """Decides after the attempt's end: the trial is retried, or gets its final status."""
    by_platform, by_user = snapshot.stored.retries.get(trial.id, (0, 0))
    verdict = outcome(
        finding.report,
        trial.asked,
        platform_retries=snapshot.spec.max_platform_retries - by_platform,
        user_retries=snapshot.spec.max_trial_retries - by_user,
        has_final=trial.has_final,
    )
    if finding.report.state is JobState.LOST and not job.has_ended_there:
        lost = MarkLost(
            trial_id=trial.id, attempt=trial.attempt, message=finding.report.message, ended_ms=snapshot.here.now_ms
        )
        decisions.records.append(lost)
    if verdict.status is TrialStatus.WAITING:
        _give_up(snapshot, trial, verdict, finding, decisions)
    else:
        _finish(snapshot, trial, verdict, finding, decisions, started_ms=_other_start_ms(trial, job))
    if job.handle is not None and not _is_missed(job, verdict, finding):
        word = job.runner_exit if not job.has_ended_there else None
        decisions.calls.append(Forget(handle=job.job_handle, service=job.service, runner_exit=word or ""))


def _other_start_ms(trial: OpenTrial, job: Attempt) -> int | None:
    """The start of the job; None: the stored one. It differs if the clock was set meanwhile."""
    if job.started_ms is None or trial.started_ms is None:
        return job.started_ms
    return job.started_ms if abs(job.started_ms - trial.started_ms) >= _OTHER_START_MS else None


def _is_missed(job: Attempt, verdict: Outcome, finding: AttemptEnd) -> bool:
    """Whether the attempt becomes missed: the platform keeps the job, which may be reachable again."""
    is_lost = finding.report.state is JobState.LOST and not job.has_ended_there
    return is_lost and job.unreachable_ms is not None and verdict.status is TrialStatus.WAITING


def _give_up(snapshot: Snapshot, trial: OpenTrial, verdict: Outcome, finding: AttemptEnd, decisions: Decisions) -> None:
    account = PLATFORM if verdict.reason in PLATFORM_FAILURES else USER_CODE
    if finding.report.is_uncounted:
        account = UNCOUNTED
    ended = f"attempt {trial.attempt} ended ({verdict.reason}: {explain(finding.report)})"
    record = GiveUpAttempt(
        trial_id=trial.id,
        attempt=trial.attempt,
        account=account,
        disagreement=finding.disagreement,
        sentence=f"{ended}; the next attempt waits for a slot",
    )
    decisions.records.append(record)
    decisions.wake_at(snapshot.here.now_ms)


def _finish(
    snapshot: Snapshot,
    trial: OpenTrial,
    verdict: Outcome,
    finding: AttemptEnd,
    decisions: Decisions,
    *,
    started_ms: int | None = None,
    may_run: bool = False,
) -> None:
    report, succeeded = finding.report, verdict.status is TrialStatus.SUCCEEDED
    how = verdict.message if succeeded else explain(report, trial.asked)
    said = (how, ignored_finals(trial.further_finals), finding.doubt)
    line = cause_line(report.stderr_tail) if verdict.status is TrialStatus.FAILED else ""
    record = Finish(
        trial_id=trial.id,
        attempt=trial.attempt,
        status=verdict.status,
        reason=verdict.reason,
        message="; ".join(filter(None, said)),
        ended_ms=report.ended_ms or snapshot.here.now_ms,
        started_ms=started_ms,
        disagreement=finding.disagreement or finding.doubt,
        may_run=may_run,
        stderr_tail=report.stderr_tail,
        last_words="" if line in report.message else line,
        failure_key=failure_key(verdict.status, verdict.reason, report, trial.id),
        service=trial.job.service if trial.job is not None else "",
    )
    decisions.records.append(record)
    forget_missed(snapshot, trial, decisions)


def _out_of_reach(snapshot: Snapshot, trial: OpenTrial, job: Attempt, decisions: Decisions) -> Observation | None:
    """The observation for an unreachable job: of a stopping experiment, or of a trial to stop on a removed service.
    None: reachable, or still awaited."""
    service = snapshot.service(job.service)
    is_away = not service.state.is_ready or service.state.away_since_ms is not None
    if not (is_away or job.unreachable_ms is not None):
        return None
    if snapshot.is_stopping:
        since_ms = snapshot.here.stopping_since_ms
    elif service.is_removed and trial.asked is not None:
        since_ms = service.state.away_since_ms if is_away else job.unreachable_ms
    else:
        return None
    if since_ms is None:
        return None
    until_ms = since_ms + (_STOP_AWAY_MS if is_away else _STOP_UNREACHABLE_MS)
    if snapshot.here.now_ms < until_ms:
        decisions.wake_at(until_ms)
        return None
    why = job.unreachable or service.state.trouble or "it is unreachable"
    return Observation(state=JobState.UNKNOWN, message=f"{MAY_STILL_RUN}{job.service}: {why}")


_STOPPED_AWAY = Outcome(status=TrialStatus.USER_CANCELED, reason=Reason.EXPERIMENT_STOPPED)


# Open attempts


def _follow_state(snapshot: Snapshot, trial: OpenTrial, job: Attempt, decisions: Decisions) -> None:
    here, state = snapshot.here, snapshot.service(job.service).state
    moments = [moment for moment in (state.away_since_ms, job.unreachable_ms) if moment is not None]
    since, sentence = min(moments, default=None), f"the platform cannot be asked: {state.trouble}"
    if job.unreachable:
        sentence = f"its job's state is unknown: {job.unreachable}"
    silence_ms = here.silence_ms(job)
    if silence_ms is not None:
        decisions.wake_at(here.now_ms - silence_ms + LOST_AFTER_MS)
        if since is None and (trial.status is TrialStatus.RUNNING or silence_ms >= UNKNOWN_AFTER_MS):
            since = here.now_ms - silence_ms
            sentence = "its runner does not report, and no other source shows whether it runs"
    if since is None:
        if job.state == JobState.RUNNING and trial.status is not TrialStatus.RUNNING:
            _start(snapshot, trial, job.started_ms or here.now_ms, decisions)
    elif here.now_ms - since < UNKNOWN_AFTER_MS:
        decisions.wake_at(since + UNKNOWN_AFTER_MS)
    elif trial.status is TrialStatus.RUNNING:
        decisions.records.append(MarkUnknown(trial_id=trial.id, sentence=sentence))


def _start(snapshot: Snapshot, trial: OpenTrial, started_ms: int, decisions: Decisions) -> None:
    decisions.records.append(StartTrial(trial_id=trial.id, started_ms=started_ms))
    if snapshot.spec.max_trial_duration_s is not None:
        decisions.wake_at(started_ms + snapshot.spec.max_trial_duration_s * 1000)


def _ran_too_long(snapshot: Snapshot, trial: OpenTrial, job: Attempt, decisions: Decisions) -> bool:
    """Requests the stop of a trial over `maxTrialDuration`, if this process has observed its job; returns whether it
    did."""
    limit, heard = snapshot.spec.max_trial_duration_s, snapshot.here.heard
    if limit is None or trial.started_ms is None or (heard is not None and job.job_name not in heard):
        return False
    deadline = (job.started_ms or trial.started_ms) + limit * 1000
    if snapshot.here.now_ms < deadline:
        decisions.wake_at(deadline)
        return False
    decisions.records.append(RequestStop(trial_id=trial.id, by=StopRequest.TIMEOUT))
    return True
