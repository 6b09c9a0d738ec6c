"""The experiment's next status, and the limits on new trials."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, StoredExperiment
from nni_manager.domain.reason import Reason
from nni_manager.scheduler.planning.decisions import AddTrial, Decisions, Finish, SetStatus
from nni_manager.scheduler.planning.snapshot import Snapshot


def takes_attempts(snapshot: Snapshot) -> bool:
    """Whether status and hold of the experiment allow new attempts."""
    status = snapshot.experiment.status
    return (status.is_active or status is ExperimentStatus.DONE) and snapshot.hold is None


def trials_left(snapshot: Snapshot) -> int:
    """How many more trials may be made before a limit of the experiment is reached."""
    return room(snapshot.spec, snapshot.experiment, snapshot.exec_ms)


def room(spec: ExperimentSpec, experiment: StoredExperiment, exec_ms: int) -> int:
    """How many more trials the limits of `spec` leave, after `exec_ms` milliseconds at work."""
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
    elif _counts_down(snapshot, status) and snapshot.spec.max_experiment_duration_s is not None:
        left_ms = snapshot.spec.max_experiment_duration_s * 1000 - snapshot.exec_ms
        decisions.wake_at(snapshot.here.now_ms + max(0, left_ms) + 1)


def _counts_down(snapshot: Snapshot, status: ExperimentStatus) -> bool:
    return status is ExperimentStatus.RUNNING and snapshot.experiment.is_counting


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
        asks_again = finished or here.asked  # the last result may give the tuner a new idea
        return ExperimentStatus.TUNER_NO_MORE_TRIAL if still_open or asks_again else ExperimentStatus.DONE
    return ExperimentStatus.RUNNING
