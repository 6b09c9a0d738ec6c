"""The decisions of a plan: records, written in its transaction, and calls, made after the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import ExperimentStatus, Hold, NeedlessCheckpoint
from nni_manager.domain.job import JobHandle
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait
from nni_manager.domain.trial import StopRequest
from nni_manager.domain.trial_status import TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTrial:
    """A new WAITING trial with the next sequence id."""

    trial_id: str
    parameter_id: int
    #: JSON, as the trial reads it.
    record: str
    #: The trial whose checkpoint it begins with; empty: none.
    continues: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """The intent to submit; always comes with a `Submit`."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrial:
    """The trial's command runs, possibly again after UNKNOWN. An ended trial only gets a `Finish`."""

    trial_id: str
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkUnknown:
    """The trial becomes UNKNOWN."""

    trial_id: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStop:
    trial_id: str
    by: StopRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLost:
    """The attempt's job counts as LOST after being unreachable for too long."""

    trial_id: str
    attempt: int
    message: str
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The trial ends; its attempt, if any, is closed."""

    trial_id: str
    attempt: int
    status: TrialStatus
    reason: Reason
    message: str
    ended_ms: int
    #: Its start, if it differs from the stored one; None: the stored one stays.
    started_ms: int | None = None
    #: Contradiction between platform and runner; empty: none.
    disagreement: str = ""
    #: Its job may still run on an unreachable service; it is ended at the next connect.
    may_run: bool = False
    #: Last lines of its standard error.
    stderr_tail: str = ""
    #: The line that states the cause, if the trial failed and `message` does not contain it.
    last_words: str = ""
    #: As `domain.trial.failure_key` says.
    failure_key: str = ""
    #: Training service of its attempt; empty: it had none.
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteCheckpoint:
    """The trial succeeded, and `keepCheckpoints` decides whether its checkpoint stays."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpAttempt:
    """The attempt is closed, and the trial waits for another one."""

    trial_id: str
    attempt: int
    #: `domain.attempt.PLATFORM`, `USER_CODE` or `UNCOUNTED`.
    account: str
    sentence: str
    #: Contradiction between platform and runner; empty: none.
    disagreement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviveAttempt:
    """A missed attempt becomes the trial's current one again."""

    trial_id: str
    attempt: int
    #: The attempt that it replaces, which is closed; None: that did not start.
    replaced: int | None
    #: The replaced one may run although it has no handle.
    may_run: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMissed:
    """A missed attempt is not awaited any more."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWait:
    trial_id: str
    wait: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    status: ExperimentStatus
    #: Reason, if it is ERROR.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOnHold:
    """The experiment's hold; None: it ends, because that of its service has."""

    hold: Hold | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountUnusable:
    """The count of succeeded trials without a usable result, as in `StoredExperiment.unusable_results`."""

    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldService:
    """A training service is not used until the user has fixed something; None: its cause has passed."""

    service: str
    hold: Hold | None


Record = (
    AddTrial
    | StartAttempt
    | StartTrial
    | MarkUnknown
    | RequestStop
    | Finish
    | NoteCheckpoint
    | MarkLost
    | GiveUpAttempt
    | ReviveAttempt
    | DropMissed
    | SetWait
    | SetStatus
    | PutOnHold
    | CountUnusable
    | HoldService
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    attempt: Attempt
    sequence_id: int
    #: JSON, as the trial reads it.
    record: str
    #: As in `AddTrial`.
    continues: str = ""
    #: An earlier call may have submitted it.
    is_repeat: bool = False
    #: Outbox → bytes stored; for a job that may have run already.
    stored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    handle: JobHandle
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    handle: JobHandle
    service: str
    #: Exit report of the runner, JSON, if the platform has not reported the end; else empty.
    runner_exit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCheckpoints:
    """Repeated by each plan until it is known to be done."""

    checkpoints: tuple[NeedlessCheckpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTuner:
    count: int


Call = Submit | Cancel | Forget | RemoveCheckpoints | AskTuner


@dataclass(slots=True)
class Decisions:
    records: list[Record] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: Time of the next turn without an event; None: none.
    wake_at_ms: int | None = None
    #: Training service → number of trials that wait for room there.
    wants: dict[str, int] = field(default_factory=dict)

    def wake_at(self, moment_ms: int) -> None:
        self.wake_at_ms = moment_ms if self.wake_at_ms is None else min(self.wake_at_ms, moment_ms)
