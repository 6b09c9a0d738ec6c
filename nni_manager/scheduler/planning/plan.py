"""Snapshot → decisions. Pure: no await, clock or input and output, so that tables of cases test it.

Level-based: it depends on the state, never on the event that woke the loop. The next turn repeats a decision that was
lost in a crash. Order: ended attempts, stops, intended submissions, free slots, wait reasons, the experiment's status.
`open_trial` decides about one trial, `experiment_status` about the experiment; this module about services, slots and,
by `keepCheckpoints`, which checkpoints are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import OpenTrial
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.planning.decisions import (
    AddTrial,
    AskTuner,
    Decisions,
    Finish,
    GiveUpAttempt,
    HoldService,
    NoteCheckpoint,
    PutOnHold,
    RemoveCheckpoints,
    ReviveAttempt,
    SetWait,
    StartAttempt,
    Submit,
)
from nni_manager.scheduler.planning.experiment_status import (
    hold_for_failures,
    refusals,
    set_status,
    takes_attempts,
    trials_left,
)
from nni_manager.scheduler.planning.hopeless_waits import changed_holds
from nni_manager.scheduler.planning.open_trial import decide_trial
from nni_manager.scheduler.planning.service_choice import Choice
from nni_manager.scheduler.planning.snapshot import ServiceView, Snapshot
from nni_manager.scheduler.planning.unusable_results import hold_for_results

#: Wait reason of a trial between submission and start.
SUBMITTED = Wait(code=WaitCode.SUBMITTED, sentence="submitted to the platform, not started yet")
#: Minimum milliseconds between two changes of a wait sentence with the same code.
_WAIT_EVERY_MS = 1000
#: Holds under which not even intended jobs are submitted.
_NEEDS_A_PERSON = (HoldCode.BAD_CREDENTIALS, HoldCode.INTERNAL)
#: Maximum number of proposals per request: one message to the tuner, and trials of one turn. Their arrival wakes the
#: next turn, which requests the rest.
MAX_ASKED = 256
#: Records that end an attempt, or the wait for one.
_ENDS = (Finish, GiveUpAttempt, ReviveAttempt)


def plan(snapshot: Snapshot) -> Decisions:
    """All decisions for the snapshot."""
    decisions = Decisions()
    for trial in snapshot.stored.open_trials:
        decide_trial(snapshot, trial, decisions)
    finished = [record for record in decisions.records if isinstance(record, Finish)]
    ended = {record.trial_id for record in decisions.records if isinstance(record, _ENDS)}
    trials = [trial for trial in snapshot.stored.open_trials if trial.id not in ended]
    in_play, waiting = (
        [trial for trial in trials if trial.job is not None],
        [trial for trial in trials if trial.job is None],
    )
    snapshot = _notice_holds(snapshot, in_play, finished, decisions)
    _submit_intended(snapshot, in_play, decisions)
    taken = len(snapshot.stored.open_trials) - len(finished) - len(waiting)  # a retried trial keeps its slot
    waiting = _without_left(snapshot, waiting, decisions)
    choice = Choice(snapshot, in_play)
    still_waiting = _fill_slots(_as_tried(snapshot), waiting, choice, taken, decisions)
    _name_wait_reasons(snapshot, still_waiting, choice, decisions)
    _name_start_reasons(snapshot, in_play, decisions)
    set_status(snapshot, finished, decisions)
    note_checkpoints(snapshot, decisions)
    remove_checkpoints(snapshot, decisions)
    return decisions


def _notice_holds(
    snapshot: Snapshot, in_play: Sequence[OpenTrial], finished: Sequence[Finish], decisions: Decisions
) -> Snapshot:
    """Adds new holds; returns the snapshot with them. The experiment is held after too many failures, or if all
    services are held; a service, after it permanently refused a job, or while it will never start one."""
    changed = {**changed_holds(snapshot, in_play, decisions), **refusals(snapshot, finished)}
    if changed:
        snapshot = _with_service_holds(snapshot, changed, decisions)
    for_results = hold_for_results(snapshot, finished, decisions)
    hold = hold_for_failures(snapshot, finished) or for_results or _all_held(snapshot)
    if hold is None:
        return snapshot
    decisions.records.append(PutOnHold(hold=hold))
    return snapshot.with_hold(hold)


def _with_service_holds(snapshot: Snapshot, holds: Mapping[str, Hold | None], decisions: Decisions) -> Snapshot:
    """Adds new holds of services, and the end of others (None). The experiment's hold ends with that of the service it
    came from."""
    for name, hold in holds.items():
        decisions.records.append(HoldService(service=name, hold=hold))
    before = [service.hold for service in snapshot.services]
    held = tuple(replace(service, hold=holds.get(service.name, service.hold)) for service in snapshot.services)
    snapshot, hold = replace(snapshot, services=held), snapshot.experiment.hold
    if hold is None or hold not in before or hold in [service.hold for service in held]:
        return snapshot
    decisions.records.append(PutOnHold(hold=None))
    return snapshot.with_hold(None)


# The platform


def _submit_intended(snapshot: Snapshot, in_play: Sequence[OpenTrial], decisions: Decisions) -> None:
    """Submits intended jobs without a handle again, after a crash or an outage.

    To the same service: it may have accepted the job, and the same name means the same job, which can then be observed
    or cancelled.
    """
    for trial in in_play:
        assert trial.job is not None
        # not its state: a runner may report the start before the handle is stored
        if trial.job.handle is not None or trial.job.job_name in snapshot.here.submitting:
            continue
        service = snapshot.service(trial.job.service)
        if _needs_a_person(snapshot, service) and not snapshot.is_stopping:
            continue
        if service.state.may_submit(snapshot.here.now_ms):
            stored = snapshot.stored.offsets[trial.job.job_name]
            again = Submit(
                attempt=trial.job,
                sequence_id=trial.sequence_id,
                record=trial.record,
                continues=trial.continues,
                stored=stored,
                is_repeat=True,
            )
            decisions.calls.append(again)
        else:
            _wake_to_try_again(service, decisions)


def _all_held(snapshot: Snapshot) -> Hold | None:
    """The first service's hold, if all services have one and the experiment has none."""
    holds = [service.hold for service in snapshot.services if not service.is_removed]
    return None if snapshot.experiment.hold is not None or None in holds else next(iter(holds), None)


def _as_tried(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the hold that came from the services' holds, while one service may be tried."""
    is_tried = any(service.is_tried for service in snapshot.services)
    if not is_tried or snapshot.experiment.hold not in [service.hold for service in snapshot.services]:
        return snapshot
    return snapshot.with_hold(None)


def _needs_a_person(snapshot: Snapshot, service: ServiceView) -> bool:
    if snapshot.here.missing is not None:
        return True
    return not service.is_tried and any(
        hold is not None and hold.code in _NEEDS_A_PERSON for hold in (snapshot.experiment.hold, service.hold)
    )


def _wake_to_try_again(service: ServiceView, decisions: Decisions) -> None:
    if service.state.is_ready:
        decisions.wake_at(service.state.retry_at_ms)


# The slots


class NewTrial(NamedTuple):
    """A trial that this plan adds."""

    id: str
    sequence_id: int
    record: str
    attempt: int = 1
    continues: str = ""


def _fill_slots(
    snapshot: Snapshot, waiting: list[OpenTrial], choice: Choice, taken: int, decisions: Decisions
) -> list[OpenTrial]:
    """Starts waiting trials, then new ones, then asks the tuner for more; returns the trials that still wait."""
    for service in snapshot.services:
        if not service.state.may_submit(snapshot.here.now_ms):
            _wake_to_try_again(service, decisions)
    if not choice.is_possible or not takes_attempts(snapshot):
        return waiting
    free = max(0, snapshot.spec.trial_concurrency - taken)
    left = [trial for trial in waiting[:free] if not _start_waiting(snapshot, trial, choice, decisions)]
    if snapshot.experiment.status.is_active:
        _make_trials(snapshot, max(0, free - len(waiting)), choice, decisions)
    started = {record.attempt.trial_id for record in decisions.records if isinstance(record, StartAttempt)}
    in_vain = sum(isinstance(record, AddTrial) and record.trial_id not in started for record in decisions.records)
    decisions.wants = dict.fromkeys(choice.lacking_room(), len(left) + in_vain)
    return left + waiting[free:]


def _without_left(snapshot: Snapshot, waiting: Sequence[OpenTrial], decisions: Decisions) -> list[OpenTrial]:
    """The waiting trials without an earlier job that may still run; the others wait until that job has ended."""
    for trial in waiting:
        if (name := snapshot.stored.left.get(trial.id)) is not None:
            trouble = snapshot.service(name).state.trouble or "it is being ended"
            sentence = f"its last job may still run on {name}: {trouble}"
            _set_wait(snapshot, trial, Wait(code=WaitCode.PLATFORM_UNAVAILABLE, sentence=sentence), decisions)
    return [trial for trial in waiting if trial.id not in snapshot.stored.left]


def _start_waiting(snapshot: Snapshot, trial: OpenTrial, choice: Choice, decisions: Decisions) -> bool:
    """As `_start`; the trial says so."""
    has_started = _start(snapshot, trial, choice, decisions)
    if has_started:
        decisions.records.append(SetWait(trial_id=trial.id, wait=SUBMITTED))
    return has_started


def _start(snapshot: Snapshot, trial: OpenTrial | NewTrial, choice: Choice, decisions: Decisions) -> bool:
    """Starts an attempt; returns False if no service has room."""
    service = choice.pick()
    if service is None:
        return False
    name = job_name(snapshot.experiment.id, trial.id, trial.attempt)
    attempt = Attempt(trial.id, trial.attempt, name, service=service, intended_ms=snapshot.here.now_ms)
    decisions.records.append(StartAttempt(attempt=attempt))
    decisions.calls.append(
        Submit(attempt=attempt, sequence_id=trial.sequence_id, record=trial.record, continues=trial.continues)
    )
    return True


def _make_trials(snapshot: Snapshot, free: int, choice: Choice, decisions: Decisions) -> None:
    """Adds trials for `free` slots from the available proposals, within the limits.

    Also if no service has room, so that the trial shows its wait reason.
    """
    proposals, left = snapshot.here.proposals, trials_left(snapshot)
    ids = snapshot.stored.fresh_ids[: min(free, left)]
    made = len(ids)
    for number, (trial_id, proposal) in enumerate(zip(ids, proposals[:made], strict=True)):
        parameters = Parameters(
            parameter_id=proposal.parameter_id, source=ParameterSource.ALGORITHM, values=proposal.values
        )
        trial = NewTrial(
            trial_id, snapshot.experiment.next_sequence_id + number, parameters.record(), continues=proposal.continues
        )
        added = AddTrial(
            trial_id=trial_id,
            parameter_id=proposal.parameter_id,
            record=trial.record,
            continues=proposal.continues,
        )
        decisions.records.append(added)
        if not _start(snapshot, trial, choice, decisions):
            decisions.records.append(SetWait(trial_id=trial_id, wait=_wait_reason(snapshot, choice)))
    if left > made and not snapshot.here.exhausted:
        _ask_tuner(snapshot, free - made, left - made, len(proposals) - made, decisions)


def _ask_tuner(snapshot: Snapshot, free: int, left: int, in_hand: int, decisions: Decisions) -> None:
    """Requests proposals for `free` slots and ahead of need, at most `left`."""
    here = snapshot.here
    missing = min(free + here.ahead, left) - in_hand - here.asked
    if missing <= (here.ahead // 2 if free == 0 else 0):  # requests ahead of need are batched
        return
    count = min(missing, MAX_ASKED - here.asked)
    if count > 0:
        decisions.calls.append(AskTuner(count=count))


# The wait reasons


def _name_wait_reasons(snapshot: Snapshot, waiting: Sequence[OpenTrial], choice: Choice, decisions: Decisions) -> None:
    if not waiting:
        return
    wait = _wait_reason(snapshot, choice)
    for trial in waiting:
        says_more = trial.wait_code == WaitCode.RETRY and wait.code is not WaitCode.HOLD
        if not says_more:
            _set_wait(snapshot, trial, wait, decisions)


def _wait_reason(snapshot: Snapshot, choice: Choice) -> Wait:
    """The wait reason of a trial without a job: a hold, no service for it, or no slot."""
    if snapshot.hold is not None:
        return Wait(code=WaitCode.HOLD, sentence=f"the experiment is on hold: {snapshot.hold.sentence}")
    if snapshot.experiment.status is ExperimentStatus.ERROR:
        sentence = f"the experiment cannot continue until it is resumed: {snapshot.experiment.error}"
        return Wait(code=WaitCode.HOLD, sentence=sentence)
    if (reason := choice.reason()) is not None:
        return reason
    sentence = f"all {snapshot.spec.trial_concurrency} slots of trialConcurrency are taken"
    return Wait(code=WaitCode.CONCURRENCY, sentence=sentence)


def _name_start_reasons(snapshot: Snapshot, in_play: Sequence[OpenTrial], decisions: Decisions) -> None:
    """Sets the wait reason of submitted trials: the platform's, if it reports one."""
    for trial in in_play:
        starts = trial.job is not None and trial.job.state == JobState.RUNNING
        if trial.job is not None and trial.status is TrialStatus.WAITING and not starts:
            _set_wait(snapshot, trial, _start_reason(snapshot, trial.job), decisions)


def _start_reason(snapshot: Snapshot, job: Attempt) -> Wait:
    state = snapshot.service(job.service).state
    if job.unreachable_ms is not None:
        return Wait(code=WaitCode.MACHINE_DOWN, sentence=job.unreachable)
    if state.trouble:
        return Wait(code=WaitCode.PLATFORM_UNAVAILABLE, sentence=state.trouble)
    return job.wait or SUBMITTED


def _set_wait(snapshot: Snapshot, trial: OpenTrial, wait: Wait, decisions: Decisions) -> None:
    """Sets a trial's wait reason; a sentence that changes often is written once a second."""
    is_same_code = trial.wait_code == wait.code
    if is_same_code and trial.wait_sentence == wait.sentence and trial.wait_details == json.dumps(wait.details):
        return
    next_ms = trial.wait_ms + _WAIT_EVERY_MS
    if is_same_code and snapshot.here.now_ms < next_ms:
        decisions.wake_at(next_ms)
    else:
        decisions.records.append(SetWait(trial_id=trial.id, wait=wait))


#: A trial that ended otherwise may be inspected or repeated with its files.
_ENDED_WELL = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)


def note_checkpoints(snapshot: Snapshot, decisions: Decisions) -> None:
    """Notes the trials that this plan ends successfully, if one of their services can remove their files."""
    if snapshot.spec.kept_checkpoints is None:
        return
    for record in [one for one in decisions.records if isinstance(one, Finish)]:
        can_remove = snapshot.service(record.service).state.capabilities.removes_checkpoints
        if record.status in _ENDED_WELL and can_remove:
            decisions.records.append(NoteCheckpoint(trial_id=record.trial_id))


def remove_checkpoints(snapshot: Snapshot, decisions: Decisions) -> None:
    """Removes checkpoints that are not needed any more."""
    if found := snapshot.stored.needless:
        decisions.calls.append(RemoveCheckpoints(checkpoints=found))
