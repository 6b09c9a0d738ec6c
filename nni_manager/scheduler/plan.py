"""Snapshot → decisions. Pure: no await, no clock, no input or output, so that tables can test it.

Level-based: it looks at how things are, never at what woke it. Whatever was decided and then lost in a crash is
decided again by the next turn. Order: settle what ended, stop what must stop, submit what was intended, fill free
slots, name the wait reasons, set the experiment's status. `trial_course` decides about one trial, `experiment_status`
about the experiment; what stands here is what trials share: the platform and the slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobState
from nni_manager.domain.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import TrialStatus
from nni_manager.domain.wait import WaitCode
from nni_manager.scheduler.decisions import (
    AddTrial,
    AskTuner,
    Decisions,
    Finish,
    GiveUpAttempt,
    PutOnHold,
    SetWait,
    StartAttempt,
    Submit,
)
from nni_manager.scheduler.experiment_status import same_failure, set_status, takes_attempts, trials_left
from nni_manager.scheduler.snapshot import Snapshot
from nni_manager.scheduler.trial_course import follow
from nni_manager.store.trials import OpenTrial

#: What a trial waits for between its submission and its start.
SUBMITTED = "handed to the platform, not started yet"
#: Holds under which not even intended jobs are submitted.
_NEEDS_A_PERSON = (HoldCode.BAD_CREDENTIALS, HoldCode.INTERNAL)
#: Proposals that may be asked for at a time: they are one message to the tuner and, once they come, trials of one turn.
#: The next turn, for which their arrival is news enough, asks for what is still missing.
MAX_ASKED = 256
#: Records that end an attempt.
_ENDS = (Finish, GiveUpAttempt)


def plan(snapshot: Snapshot) -> Decisions:
    """Everything that should happen now."""
    decisions = Decisions()
    for trial in snapshot.open_trials:
        follow(snapshot, trial, decisions)
    finished = [record for record in decisions.records if isinstance(record, Finish)]
    in_play, waiting = _going_on(snapshot, decisions)
    snapshot = _notice_same_failure(snapshot, finished, decisions)
    _submit_intended(snapshot, in_play, decisions)
    taken = len(snapshot.open_trials) - len(finished) - len(waiting)  # who tries again keeps the slot
    still_waiting = _fill_slots(snapshot, waiting, taken, decisions)
    _name_wait_reasons(snapshot, still_waiting, decisions)
    _name_start_reasons(snapshot, in_play, decisions)
    set_status(snapshot, finished, decisions)
    return decisions


def _going_on(snapshot: Snapshot, decisions: Decisions) -> tuple[list[OpenTrial], list[OpenTrial]]:
    """Oldest first: trials with an attempt that has not ended, and trials whose attempt was not started yet."""
    ended = {record.trial_id for record in decisions.records if isinstance(record, _ENDS)}
    trials = [trial for trial in snapshot.open_trials if trial.id not in ended]
    return [trial for trial in trials if trial.job is not None], [trial for trial in trials if trial.job is None]


def _notice_same_failure(snapshot: Snapshot, finished: Sequence[Finish], decisions: Decisions) -> Snapshot:
    """The snapshot that the rest of the plan goes by: on hold, if the first trials have just all failed in one way."""
    hold = same_failure(snapshot, finished)
    if hold is None:
        return snapshot
    decisions.records.append(PutOnHold(hold=hold))
    return replace(snapshot, experiment=snapshot.experiment._replace(hold=hold))


# The platform


def _submit_intended(snapshot: Snapshot, in_play: Sequence[OpenTrial], decisions: Decisions) -> None:
    """Submits (again) what was decided earlier and has no handle: a crash or an outage came between.

    A trial that must stop meanwhile is submitted too: whether its platform took it is not known, and the same name
    is the same job, which can then be cancelled.
    """
    hold, here = snapshot.experiment.hold, snapshot.here
    if hold is not None and hold.code in _NEEDS_A_PERSON and not snapshot.is_stopping:
        return
    for trial in in_play:
        assert trial.job is not None
        # not its state: a runner may say that it runs before its platform's answer is stored
        if trial.job.handle is not None or trial.job.job_name in here.submitting:
            continue
        if here.may_submit:
            again = _submit(snapshot, trial.id, trial.attempt, trial.sequence_id, trial.record)
            decisions.calls.append(replace(again, stored=snapshot.stored[trial.job.job_name]))
        else:
            decisions.wake_at(here.retry_at_ms)


def _submit(snapshot: Snapshot, trial_id: str, attempt: int, sequence_id: int, record: str) -> Submit:
    name = job_name(snapshot.experiment.id, trial_id, attempt)
    return Submit(job_name=name, trial_id=trial_id, attempt=attempt, sequence_id=sequence_id, record=record)


# The slots


def _fill_slots(snapshot: Snapshot, waiting: list[OpenTrial], taken: int, decisions: Decisions) -> list[OpenTrial]:
    """Starts waiting trials, then new ones, then asks the tuner for what is missing; says which trials still wait."""
    if not snapshot.here.may_submit:
        decisions.wake_at(snapshot.here.retry_at_ms)
        return waiting
    if not takes_attempts(snapshot):
        return waiting
    free = max(0, snapshot.spec.trial_concurrency - taken)
    for trial in waiting[:free]:
        _start(snapshot, trial.id, trial.attempt, trial.sequence_id, trial.record, decisions)
    if snapshot.experiment.status.is_active:
        _make_trials(snapshot, max(0, free - len(waiting)), decisions)
    return waiting[free:]


def _start(
    snapshot: Snapshot, trial_id: str, attempt: int, sequence_id: int, record: str, decisions: Decisions
) -> None:
    submit = _submit(snapshot, trial_id, attempt, sequence_id, record)
    decisions.records.append(StartAttempt(trial_id=trial_id, attempt=attempt, job_name=submit.job_name))
    decisions.calls.append(submit)


def _make_trials(snapshot: Snapshot, free: int, decisions: Decisions) -> None:
    """New trials for `free` slots from the proposals in hand, as far as both and the limits go."""
    proposals, left = snapshot.here.proposals, trials_left(snapshot)
    ids = snapshot.fresh_ids[: min(free, left)]
    made = len(ids)
    for number, (trial_id, proposal) in enumerate(zip(ids, proposals[:made], strict=True)):
        parameters = Parameters(
            parameter_id=proposal.parameter_id, source=ParameterSource.ALGORITHM, values=proposal.values
        )
        record = parameters.record()
        decisions.records.append(AddTrial(trial_id=trial_id, parameter_id=proposal.parameter_id, record=record))
        sequence_id = snapshot.experiment.next_sequence_id + number
        _start(snapshot, trial_id, 1, sequence_id, record, decisions)
    if left > made and not snapshot.here.exhausted:
        _ask_tuner(snapshot, free - made, left - made, len(proposals) - made, decisions)


def _ask_tuner(snapshot: Snapshot, free: int, left: int, in_hand: int, decisions: Decisions) -> None:
    """For `free` slots and ahead of need, at most for the `left` trials that may still be made."""
    here = snapshot.here
    missing = min(free + here.ahead, left) - in_hand - here.asked
    if missing <= (here.ahead // 2 if free == 0 else 0):  # what is not needed yet is asked for in heaps
        return
    count = min(missing, MAX_ASKED - here.asked)
    if count > 0:
        decisions.calls.append(AskTuner(count=count))


# The wait reasons


def _name_wait_reasons(snapshot: Snapshot, waiting: Sequence[OpenTrial], decisions: Decisions) -> None:
    """Every trial that waits for a slot says why."""
    if not waiting:
        return
    code, sentence = _wait_reason(snapshot)
    for trial in waiting:
        says_more = trial.wait_code == WaitCode.RETRY and code is WaitCode.CONCURRENCY
        if trial.wait_code != code and not says_more:
            decisions.records.append(SetWait(trial_id=trial.id, code=code, sentence=sentence))


def _wait_reason(snapshot: Snapshot) -> tuple[WaitCode, str]:
    if snapshot.hold is not None:
        return WaitCode.HOLD, f"the experiment is on hold: {snapshot.hold.sentence}"
    if snapshot.experiment.status is ExperimentStatus.ERROR:
        return WaitCode.HOLD, f"the experiment cannot go on until it is resumed: {snapshot.experiment.error}"
    if snapshot.here.platform_trouble:
        return WaitCode.PLATFORM_UNAVAILABLE, snapshot.here.platform_trouble
    return WaitCode.CONCURRENCY, f"all {snapshot.spec.trial_concurrency} slots of trialConcurrency are taken"


def _name_start_reasons(snapshot: Snapshot, in_play: Sequence[OpenTrial], decisions: Decisions) -> None:
    """Every trial whose attempt waits for its start says why."""
    code, sentence = WaitCode.SUBMITTED, SUBMITTED
    if snapshot.here.platform_trouble:
        code, sentence = WaitCode.PLATFORM_UNAVAILABLE, snapshot.here.platform_trouble
    for trial in in_play:
        starts = trial.job is not None and trial.job.state == JobState.RUNNING
        if trial.status is TrialStatus.WAITING and trial.wait_code != code and not starts:
            decisions.records.append(SetWait(trial_id=trial.id, code=code, sentence=sentence))
