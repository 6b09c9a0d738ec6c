"""Snapshot → decisions. Pure: no await, no clock, no input or output, so that tables can test it.

Level-based: it looks at how things are, never at what woke it. Whatever was decided and then lost in a crash is
decided again by the next turn. Order: settle what ended, stop what must stop, submit what was intended, fill free
slots, name the wait reasons, set the experiment's status.
"""

from __future__ import annotations

import dataclasses

from nni_manager.domain.evidence import Finding, RunnerWord, weigh
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobReport, JobState
from nni_manager.domain.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import (
    PLATFORM_RETRIES,
    Outcome,
    Reason,
    StopRequest,
    TrialStatus,
    WaitCode,
    explain,
    outcome,
)
from nni_manager.scheduler.decisions import (
    AddTrial,
    AskStop,
    AskTuner,
    Cancel,
    Decisions,
    Finish,
    Forget,
    GiveUpAttempt,
    LoseSight,
    PutOnHold,
    SetStatus,
    SetWait,
    StartAttempt,
    StartTrial,
    Submit,
)
from nni_manager.scheduler.snapshot import Snapshot
from nni_manager.store import jobs
from nni_manager.store.trials import AttemptRow, OpenTrial
from trial_runner import protocol

#: So many first trials that fail in the same way put the experiment on hold.
SAME_FAILURES = 5
#: A trial whose platform cannot be asked for so long becomes UNKNOWN.
UNKNOWN_AFTER_MS = 30_000
#: What a trial waits for between its submission and its start.
SUBMITTED = "handed to the platform, not started yet"
#: Holds under which not even intended jobs are submitted.
_NEEDS_A_PERSON = (HoldCode.BAD_CREDENTIALS, HoldCode.INTERNAL)


def plan(snapshot: Snapshot) -> Decisions:
    """Everything that should happen now."""
    draft = _Draft(snapshot)
    for trial in snapshot.open_trials:
        draft.look_at(trial)
    draft.notice_same_failures()
    draft.submit_intended()
    draft.fill_slots()
    draft.name_wait_reasons()
    draft.set_status()
    return draft.decisions


class _Draft:
    """One pass over a snapshot; holds what is left to hand out while it goes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.experiment = snapshot.experiment
        self.spec = snapshot.spec
        self.here = snapshot.here
        self.decisions = Decisions()
        #: Trials with an attempt that has not ended, and those that need one.
        self.in_play: list[OpenTrial] = []
        self.waiting: list[OpenTrial] = []
        self.given_up = 0  # attempts, in this pass: their trials keep their slots
        self.finished: list[Finish] = []
        self.created = self.experiment.next_sequence_id

    # One trial

    def look_at(self, trial: OpenTrial) -> None:
        if trial.job is None:
            self._look_at_waiting(trial)
        elif (finding := self._finding(trial, trial.job)) is not None:
            self._settle(trial, trial.job, finding)
        else:
            self.in_play.append(trial)
            self._look_at_job(trial, trial.job)

    def _look_at_waiting(self, trial: OpenTrial) -> None:
        asked = trial.asked or (StopRequest.EXPERIMENT_STOPPED if self._is_stopping else None)
        if asked is None:
            self.waiting.append(trial)
            return
        never_ran = JobReport(state=JobState.CANCELLED, message="it had not been submitted")
        self._finish(trial, outcome(never_ran, asked, platform_retries=0, user_retries=0), never_ran)

    def _finding(self, trial: OpenTrial, job: AttemptRow) -> Finding | None:
        """What platform and runner say of the attempt's end, once it is worth deciding on."""
        platform = _platform_end(job)
        runner = RunnerWord.parse(job.runner_exit) if job.runner_exit is not None else None
        since_ms = self._waits_since(trial, job, platform, runner)
        if since_ms is not None:
            until_ms = since_ms + round(self.spec.metric_grace_s * 1000)
            if self.here.now_ms < until_ms:
                self.decisions.wake_at(until_ms)
                return None
        return weigh(platform, runner)

    def _waits_since(
        self, trial: OpenTrial, job: AttemptRow, platform: JobReport | None, runner: RunnerWord | None
    ) -> int | None:
        """Since when something is expected that would complete the picture; None: nothing is.

        After the runner's word, its last results, and the platform's word when the command was ended by a signal that
        nobody here sent. After the platform's word alone, the runner's, unless the platform ended the job itself.
        """
        if runner is not None:
            unexplained = runner.signal is not None and platform is None and trial.asked is None
            is_complete = job.job_name in self.snapshot.drained and not unexplained
            return None if is_complete else job.runner_exit_ms
        ended_itself = platform is not None and platform.state in (JobState.SUCCEEDED, JobState.FAILED)
        has_runner = job.channel in (protocol.PUSH, protocol.PULL)
        return job.final_seen_ms if has_runner and ended_itself else None

    def _settle(self, trial: OpenTrial, job: AttemptRow, finding: Finding) -> None:
        report = finding.report
        by_platform, by_user = self.snapshot.retries[trial.id]
        verdict = outcome(
            report,
            trial.asked,
            platform_retries=PLATFORM_RETRIES - by_platform,
            user_retries=self.spec.max_trial_retries - by_user,
        )
        if verdict.status is TrialStatus.WAITING:
            self._give_up(trial, verdict, finding)
        else:
            self._finish(trial, verdict, report, finding.disagreement)
        if job.handle is not None:
            word = job.runner_exit if _platform_end(job) is None else None
            self.decisions.calls.append(Forget(handle=_handle(job), runner_word=word or ""))

    def _give_up(self, trial: OpenTrial, verdict: Outcome, finding: Finding) -> None:
        self.given_up += 1
        platform = verdict.reason in (Reason.LOST, Reason.PREEMPTED)
        account = jobs.PLATFORM if platform else jobs.USER_CODE
        ended = f"attempt {trial.attempt} ended ({verdict.reason}: {explain(finding.report)})"
        record = GiveUpAttempt(
            trial_id=trial.id, attempt=trial.attempt, account=account, disagreement=finding.disagreement,
            sentence=f"{ended}; the next one waits for a slot",
        )  # fmt: skip
        self.decisions.records.append(record)
        self.decisions.wake_at(self.here.now_ms)

    def _finish(self, trial: OpenTrial, verdict: Outcome, report: JobReport, disagreement: str = "") -> None:
        succeeded = verdict.status is TrialStatus.SUCCEEDED
        record = Finish(
            trial_id=trial.id, attempt=trial.attempt, status=verdict.status, reason=verdict.reason,
            message="" if succeeded else explain(report, trial.asked), ended_ms=report.ended_ms or self.here.now_ms,
            disagreement=disagreement,
        )  # fmt: skip
        self.finished.append(record)
        self.decisions.records.append(record)

    def _look_at_job(self, trial: OpenTrial, job: AttemptRow) -> None:
        self._follow_state(trial, job)
        if trial.asked is not None or self._is_stopping or self._ran_too_long(trial):
            self._stop(trial, job)

    def _follow_state(self, trial: OpenTrial, job: AttemptRow) -> None:
        since = self.here.unreachable_since_ms
        lost_sight = since is not None and self.here.now_ms - since >= UNKNOWN_AFTER_MS
        if lost_sight and trial.status is TrialStatus.RUNNING:
            sentence = f"the platform cannot be asked: {self.here.platform_trouble}"
            self.decisions.records.append(LoseSight(trial_id=trial.id, sentence=sentence))
        elif since is not None and not lost_sight:
            self.decisions.wake_at(since + UNKNOWN_AFTER_MS)
        elif since is None and job.state == JobState.RUNNING and trial.status is not TrialStatus.RUNNING:
            started = job.started_ms or self.here.now_ms
            self.decisions.records.append(StartTrial(trial_id=trial.id, started_ms=started))
            if self.spec.max_trial_duration_s is not None:
                self.decisions.wake_at(started + self.spec.max_trial_duration_s * 1000)

    def _ran_too_long(self, trial: OpenTrial) -> bool:
        """Asks a trial over `maxTrialDuration` to stop."""
        limit = self.spec.max_trial_duration_s
        if limit is None or trial.started_ms is None:
            return False
        deadline = trial.started_ms + limit * 1000
        if self.here.now_ms < deadline:
            self.decisions.wake_at(deadline)
            return False
        self.decisions.records.append(AskStop(trial_id=trial.id, by=StopRequest.TIMEOUT))
        return True

    def _stop(self, trial: OpenTrial, job: AttemptRow) -> None:
        if trial.asked is None and self._is_stopping:
            self.decisions.records.append(AskStop(trial_id=trial.id, by=StopRequest.EXPERIMENT_STOPPED))
        if job.handle is not None and job.job_name not in self.here.cancelled:
            self.decisions.calls.append(Cancel(handle=_handle(job)))

    # The experiment

    @property
    def _is_stopping(self) -> bool:
        return self.experiment.status is ExperimentStatus.STOPPING

    @property
    def _hold(self) -> Hold | None:
        return self.experiment.hold or self.here.tuner_trouble

    @property
    def _takes_trials(self) -> bool:
        """New attempts may start."""
        runs = self.experiment.status.is_active or self.experiment.status is ExperimentStatus.DONE
        return runs and self._hold is None and self._may_submit

    @property
    def _may_submit(self) -> bool:
        """The platform takes jobs, or it is time to try again."""
        return not self.here.platform_trouble or self.here.now_ms >= self.here.retry_at_ms

    @property
    def _exec_ms(self) -> int:
        counted = self.here.now_ms - self.experiment.counted_ms if self.experiment.status.is_active else 0
        return self.experiment.exec_ms + max(0, counted)

    @property
    def _limit_reached(self) -> bool:
        most, longest_s = self.spec.max_trial_number, self.spec.max_experiment_duration_s
        return (most is not None and self.created >= most) or (
            longest_s is not None and self._exec_ms > longest_s * 1000
        )

    def notice_same_failures(self) -> None:
        """Puts the experiment on hold when its first trials all failed in one way: it would go on for ever."""
        if not self.finished or self.experiment.ended_trials >= SAME_FAILURES:
            return
        ended = [*self.snapshot.first_ended, *((f.status, f.reason, f.message) for f in self.finished)]
        first = ended[:SAME_FAILURES]
        if len(first) < SAME_FAILURES or len(set(first)) > 1 or first[0][0] != TrialStatus.FAILED:
            return
        _, reason, message = first[0]
        sentence = (
            f"the first {SAME_FAILURES} trials all failed in the same way ({reason}: {message});"
            " look at a trial's stderr, put it right, then resume"
        )
        hold = Hold(code=HoldCode.SAME_FAILURE, sentence=sentence)
        self.decisions.records.append(PutOnHold(hold=hold))
        self.experiment = dataclasses.replace(self.experiment, hold=hold)

    def submit_intended(self) -> None:
        """Submits (again) what was decided earlier and has no handle: a crash or an outage came between.

        A trial that must stop meanwhile is submitted too: whether its platform took it is not known, and the same name
        is the same job, which can then be cancelled.
        """
        hold = self.experiment.hold
        if hold is not None and hold.code in _NEEDS_A_PERSON and not self._is_stopping:
            return
        for trial in self.in_play:
            assert trial.job is not None
            # not its state: a runner may say that it runs before its platform's answer is stored
            if trial.job.handle is not None or trial.job.job_name in self.here.submitting:
                continue
            if self._may_submit:
                self._submit(trial.id, trial.attempt, trial.sequence_id, trial.record)
            else:
                self.decisions.wake_at(self.here.retry_at_ms)

    def _submit(self, trial_id: str, attempt: int, sequence_id: int, record: str) -> None:
        name = job_name(self.experiment.id, trial_id, attempt)
        self.decisions.calls.append(
            Submit(job_name=name, trial_id=trial_id, attempt=attempt, sequence_id=sequence_id, record=record)
        )

    def fill_slots(self) -> None:
        """Starts waiting trials, then new ones, then asks the tuner for what is missing."""
        if not self._takes_trials:
            if not self._may_submit:
                self.decisions.wake_at(self.here.retry_at_ms)
            return
        free = self.spec.trial_concurrency - len(self.in_play) - self.given_up
        while free > 0 and self.waiting:
            trial = self.waiting.pop(0)
            self._start(trial.id, trial.attempt, trial.sequence_id, trial.record)
            free -= 1
        if self.experiment.status.is_active:
            self._make_trials(free)

    def _make_trials(self, free: int) -> None:
        proposals = list(self.here.proposals)
        for trial_id in self.snapshot.fresh_ids:
            if free <= 0 or self._limit_reached:
                break
            proposal = proposals.pop(0)
            parameters = Parameters(
                parameter_id=proposal.parameter_id, source=ParameterSource.ALGORITHM, values=proposal.values
            )
            self.decisions.records.append(AddTrial(trial_id=trial_id, parameters=parameters))
            self._start(trial_id, 1, self.created, parameters.record())
            self.created += 1
            free -= 1
        self._ask_tuner(free, len(proposals))

    def _start(self, trial_id: str, attempt: int, sequence_id: int, record: str) -> None:
        name = job_name(self.experiment.id, trial_id, attempt)
        self.decisions.records.append(StartAttempt(trial_id=trial_id, attempt=attempt, job_name=name))
        self._submit(trial_id, attempt, sequence_id, record)

    def _ask_tuner(self, free: int, in_hand: int) -> None:
        if self.here.exhausted or self._limit_reached:
            return
        wanted = max(0, free) + self.here.ahead
        if self.spec.max_trial_number is not None:
            wanted = min(wanted, self.spec.max_trial_number - self.created)
        missing = wanted - in_hand - self.here.asked
        if missing > (self.here.ahead // 2 if free <= 0 else 0):  # what is not needed yet is asked for in heaps
            self.decisions.calls.append(AskTuner(count=missing))

    def name_wait_reasons(self) -> None:
        """Every trial that waits says why."""
        code, sentence = self._wait_reason()
        for trial in self.waiting:
            says_more = trial.wait_code == WaitCode.RETRY and code is WaitCode.CONCURRENCY
            if trial.wait_code != code and not says_more:
                self.decisions.records.append(SetWait(trial_id=trial.id, code=code, sentence=sentence))
        code, sentence = WaitCode.SUBMITTED, SUBMITTED
        if self.here.platform_trouble:
            code, sentence = WaitCode.PLATFORM_UNAVAILABLE, self.here.platform_trouble
        for trial in self.in_play:
            starts = trial.job is not None and trial.job.state == JobState.RUNNING
            if trial.status is TrialStatus.WAITING and trial.wait_code != code and not starts:
                self.decisions.records.append(SetWait(trial_id=trial.id, code=code, sentence=sentence))

    def _wait_reason(self) -> tuple[WaitCode, str]:
        if self._hold is not None:
            return WaitCode.HOLD, f"the experiment is on hold: {self._hold.sentence}"
        if self.experiment.status is ExperimentStatus.ERROR:
            return WaitCode.HOLD, f"the experiment cannot go on until it is resumed: {self.experiment.error}"
        if self.here.platform_trouble:
            return WaitCode.PLATFORM_UNAVAILABLE, self.here.platform_trouble
        return WaitCode.CONCURRENCY, f"all {self.spec.trial_concurrency} slots of trialConcurrency are taken"

    def set_status(self) -> None:
        mismatch = next((f.message for f in self.finished if f.reason is Reason.VERSION_MISMATCH), "")
        status = self._status(mismatch)
        if status is not self.experiment.status:
            self.decisions.records.append(SetStatus(status=status, error=mismatch))
            self.decisions.wake_at(self.here.now_ms)
        elif status is ExperimentStatus.RUNNING and self.spec.max_experiment_duration_s is not None:
            left_ms = self.spec.max_experiment_duration_s * 1000 - self._exec_ms
            self.decisions.wake_at(self.here.now_ms + max(0, left_ms) + 1)

    def _status(self, mismatch: str) -> ExperimentStatus:
        """`mismatch`: a trial runner was refused, which every other one would be."""
        now = self.experiment.status
        still_open = bool(self.in_play or self.waiting or self._starts_or_retries)
        if now is ExperimentStatus.STOPPING:
            return now if still_open else ExperimentStatus.STOPPED
        if now is ExperimentStatus.DONE:
            return ExperimentStatus.RUNNING if still_open else now
        if not now.is_active:
            return now
        if mismatch:
            return ExperimentStatus.ERROR
        if self._limit_reached:
            return ExperimentStatus.NO_MORE_TRIAL if still_open else ExperimentStatus.DONE
        if self.here.exhausted and not self.here.proposals:
            asks_again = self.finished or self.here.asked  # the last result may give the tuner a new idea
            return ExperimentStatus.TUNER_NO_MORE_TRIAL if still_open or asks_again else ExperimentStatus.DONE
        return ExperimentStatus.RUNNING

    @property
    def _starts_or_retries(self) -> bool:
        return any(isinstance(record, StartAttempt | GiveUpAttempt) for record in self.decisions.records)


def _handle(job: AttemptRow) -> JobHandle:
    assert job.handle is not None
    return jobs.parse_handle(job.job_name, job.handle)


def _platform_end(job: AttemptRow) -> JobReport | None:
    """What the platform says of an end; None while it says nothing of one."""
    if job.state == jobs.INTENT or not JobState(job.state).is_final:
        return None
    return JobReport(
        state=JobState(job.state), exit_code=job.exit_code, signal=job.signal, reason=job.reason, message=job.message,
        stderr_tail=job.stderr_tail, started_ms=job.started_ms, ended_ms=job.ended_ms,
    )  # fmt: skip
