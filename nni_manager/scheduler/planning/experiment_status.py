"""The experiment's next status, the limits on new trials, and holds for repeated failures, which would use up its
budget.

`finished` always means: the ends that this plan decided, in order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, StoredExperiment
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import printable
from nni_manager.domain.trial import cause_line, reason_in_words
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.planning.decisions import AddTrial, Decisions, Finish, SetStatus
from nni_manager.scheduler.planning.snapshot import Snapshot
from trial_runner import protocol


def takes_attempts(snapshot: Snapshot) -> bool:
    """Whether status and hold of the experiment allow new attempts."""
    status = snapshot.experiment.status
    return (status.is_active or status is ExperimentStatus.DONE) and snapshot.hold is None


def trials_left(snapshot: Snapshot) -> int:
    """Number of trials that may still be created before a limit of the experiment is reached."""
    return room(snapshot.spec, snapshot.experiment, snapshot.exec_ms)


def room(spec: ExperimentSpec, experiment: StoredExperiment, exec_ms: int) -> int:
    """Number of trials that the limits of `spec` leave, after `exec_ms` milliseconds of execution."""
    most, longest_s = spec.max_trial_number, spec.max_experiment_duration_s
    if longest_s is not None and exec_ms > longest_s * 1000:
        return 0
    return sys.maxsize if most is None else max(0, most - experiment.next_sequence_id)


def set_status(snapshot: Snapshot, finished: Sequence[Finish], decisions: Decisions) -> None:
    """Adds the next status, and the time of the next turn, to the finished `decisions`.

    `finished`: the ends that this plan decided.
    """
    made = sum(isinstance(record, AddTrial) for record in decisions.records)
    still_open = made > 0 or len(snapshot.stored.open_trials) > len(finished)
    mismatch = next((f.message for f in finished if f.reason is Reason.VERSION_MISMATCH), "")
    status = _next_status(snapshot, finished, mismatch, made, still_open)
    if status is not snapshot.experiment.status:
        decisions.records.append(SetStatus(status=status, error=mismatch))
        decisions.wake_at(snapshot.here.now_ms)
        return
    longest_s = snapshot.spec.max_experiment_duration_s
    if longest_s is not None and status is ExperimentStatus.RUNNING and snapshot.experiment.is_counting:
        left_ms = longest_s * 1000 - snapshot.exec_ms
        decisions.wake_at(snapshot.here.now_ms + max(0, left_ms) + 1)


def _next_status(
    snapshot: Snapshot, finished: Sequence[Finish], mismatch: str, made: int, still_open: bool
) -> ExperimentStatus:
    """`mismatch`: sentence of a runner refused for its version; every other runner would be refused, too."""
    now, here = snapshot.experiment.status, snapshot.here
    if now is ExperimentStatus.STOPPING:
        return now if still_open else ExperimentStatus.STOPPED
    if now is ExperimentStatus.DONE:
        return ExperimentStatus.RUNNING if still_open else now
    if not now.is_active:
        return now
    if mismatch:
        return ExperimentStatus.ERROR
    if trials_left(snapshot) <= made:
        return ExperimentStatus.NO_MORE_TRIAL if still_open else ExperimentStatus.DONE
    if here.exhausted and not here.proposals:
        asks_again = finished or here.asked  # the last result may lead to new proposals
        return ExperimentStatus.TUNER_NO_MORE_TRIAL if still_open or asks_again else ExperimentStatus.DONE
    return ExperimentStatus.RUNNING


#: Number of first trials that put the experiment on hold if all fail in the same way.
SAME_FAILURES = 5


def hold_for_failures(snapshot: Snapshot, finished: Sequence[Finish]) -> Hold | None:
    """The hold for failures of the first trials, of too many in a row, or of more than allowed; else None."""
    return _first_ones(snapshot, finished) or _in_a_row(snapshot, finished) or _more_than_may(snapshot, finished)


def _first_ones(snapshot: Snapshot, finished: Sequence[Finish]) -> Hold | None:
    if not finished or snapshot.experiment.ended_trials >= SAME_FAILURES:
        return None
    new = ((f.trial_id, f.status, f.reason, f.message, f.failure_key) for f in finished)
    first = [*snapshot.stored.first_ended, *new][:SAME_FAILURES]
    # a platform's sentence may contain the name of the job, and so the trial, or its folder
    ways = {(status, reason, message.replace(id, "")) for id, status, reason, message, _ in first}
    # other sentences may contain names that the platform makes up: the key normalizes them
    keys = {key for *_, key in first}
    are_alike = len(ways) == 1 or (len(keys) == 1 and "" not in keys)
    if len(first) < SAME_FAILURES or not are_alike or first[0][1] != TrialStatus.FAILED:
        return None
    example = finished[SAME_FAILURES - 1 - len(snapshot.stored.first_ended)]  # its stderr is in memory
    return _same_failure(snapshot, f"the first {SAME_FAILURES} trials all failed in the same way", example)


def _in_a_row(snapshot: Snapshot, finished: Sequence[Finish]) -> Hold | None:
    """The hold once `maxSameFailures` consecutive ends have one failure key."""
    most = snapshot.spec.max_same_failures
    keys = [*snapshot.stored.last_keys, *(end.failure_key for end in finished)]
    for number, end in enumerate(finished, start=len(snapshot.stored.last_keys) + 1):
        if most and end.failure_key and keys[max(0, number - most) : number] == [end.failure_key] * most:
            return _same_failure(snapshot, f"{most} trials in a row failed in the same way (maxSameFailures)", end)
    return None


def _same_failure(snapshot: Snapshot, what: str, example: Finish) -> Hold:
    how = reason_in_words(example.reason, example.message)
    sentence = f"{what}: {how}; {_last_words(example)}{_what_to_do(snapshot, example)}"
    return Hold(code=HoldCode.SAME_FAILURE, sentence=sentence, details=printable(example.stderr_tail))


def _last_words(end: Finish) -> str:
    """The cause in its stderr; the hold's details have more."""
    if end.status is not TrialStatus.FAILED:
        return ""
    line = cause_line(end.stderr_tail)
    return f"its stderr says: {line}; " if line else "it wrote no stderr; "


def _what_to_do(snapshot: Snapshot, end: Finish) -> str:
    id_ = snapshot.experiment.id
    shows = f"`nnictl log trial {id_} -T {end.trial_id}` shows the output of trial {end.trial_id}"
    if end.status is not TrialStatus.FAILED:
        return f"{shows}; when its training service keeps jobs again, run `nnictl resume {id_}`"
    return f"{shows}; correct its code, then run `nnictl resume {id_}`; another trialCommand needs a new experiment"


def _more_than_may(snapshot: Snapshot, finished: Sequence[Finish]) -> Hold | None:
    """The hold at the first failure above `maxFailedTrials`."""
    spec = snapshot.spec
    new = [end for end in finished if end.failure_key]
    failed = snapshot.stored.failed + len(new)
    if spec.max_failed_trials is None or not new or failed <= spec.max_failed_trials:
        return None
    id_, last = snapshot.experiment.id, new[-1]
    how = reason_in_words(last.reason, last.message, last.last_words)
    sentence = (
        f"{failed} trials failed, but maxFailedTrials allows only {spec.max_failed_trials}; the last was trial"
        f" {last.trial_id}: {how}; correct the cause, then run `nnictl resume {id_}`, which restarts the count"
    )
    return Hold(code=HoldCode.TOO_MANY_FAILURES, sentence=sentence, details=printable(last.stderr_tail))


def refusals(snapshot: Snapshot, finished: Sequence[Finish]) -> Mapping[str, Hold]:
    """Training service → hold, for services that permanently refused a job, and for those whose Python cannot read the
    function that trials call: the next job would fail, too."""
    holds = {Reason.SUBMIT_REJECTED: _refusal, Reason.OTHER_PYTHON: _other_python}
    return {end.service: holds[end.reason](snapshot, end) for end in reversed(finished) if end.reason in holds}


def _refusal(snapshot: Snapshot, end: Finish) -> Hold:
    sentence = (
        f"{end.service} permanently refused the job of trial {end.trial_id}: {end.message}; correct that, then run"
        f" `nnictl resume {snapshot.experiment.id}`"
    )
    return Hold(code=HoldCode.SUBMIT_REJECTED, sentence=sentence)


def _other_python(snapshot: Snapshot, end: Finish) -> Hold:
    line = next(line for line in printable(end.stderr_tail).splitlines() if protocol.OTHER_PYTHON_MARK in line)
    sentence = (
        f"{end.service} ran trial {end.trial_id} in another Python: {line.partition('nni_call: ')[2]};"
        f" `nnictl resume {snapshot.experiment.id}` continues when that version is installed there"
    )
    return Hold(code=HoldCode.OTHER_PYTHON, sentence=sentence)
