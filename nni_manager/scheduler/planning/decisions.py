"""The decisions that a plan may take: records, written in the plan's own transaction, and calls, made after its
commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.job import JobHandle
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait
from nni_manager.domain.trial import StopRequest, TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTrial:
    """A new WAITING trial with the next sequence id."""

    trial_id: str
    parameter_id: int
    #: JSON, as the trial reads it.
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """The intent to submit; always comes with a `Submit`."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrial:
    """The trial's command runs (again, after it was UNKNOWN)."""

    trial_id: str
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseSight:
    """The trial becomes UNKNOWN."""

    trial_id: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStop:
    trial_id: str
    by: StopRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseJob:
    """Nobody could ask about the attempt's job for so long that it counts as lost."""

    trial_id: str
    attempt: int
    message: str
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The trial ends; its attempt, if it had one, is fenced off."""

    trial_id: str
    attempt: int
    status: TrialStatus
    reason: Reason
    message: str
    ended_ms: int
    #: What platform and runner said, when they disagree.
    disagreement: str = ""
    #: Its job may still run where nobody can be asked: whoever is next in touch with that service ends it.
    may_run: bool = False
    #: Last lines of its standard error.
    stderr_tail: str = ""
    #: The last of them, where it failed and `message` does not tell it.
    last_words: str = ""
    #: As `domain.failure.failure_key` says.
    failure_key: str = ""
    #: Training service of its attempt; empty: it had none.
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpAttempt:
    """The attempt is fenced off and the trial waits for another one."""

    trial_id: str
    attempt: int
    #: `domain.attempt.PLATFORM` or `USER_CODE`.
    account: str
    sentence: str
    #: What platform and runner said, when they disagree.
    disagreement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviveAttempt:
    """An attempt that was given up while its job could not be asked about is the trial's again."""

    trial_id: str
    attempt: int
    #: The attempt that it takes the place of, which is fenced off; None: that was not started yet.
    replaced: int | None
    #: The replaced one may run, though its platform has not said that it took it.
    may_run: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMissed:
    """The end of waiting for an attempt that was given up while its job could not be asked about."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWait:
    trial_id: str
    wait: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    status: ExperimentStatus
    #: Why, when it is ERROR.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOnHold:
    hold: Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldService:
    """A training service is not used until a person has put something right."""

    service: str
    hold: Hold


Record = (
    AddTrial
    | StartAttempt
    | StartTrial
    | LoseSight
    | AskStop
    | Finish
    | LoseJob
    | GiveUpAttempt
    | ReviveAttempt
    | DropMissed
    | SetWait
    | SetStatus
    | PutOnHold
    | HoldService
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    attempt: Attempt
    sequence_id: int
    #: JSON, as the trial reads it.
    record: str
    #: It may have been submitted before.
    is_repeat: bool = False
    #: Outbox → bytes stored, when it may have run since.
    stored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    handle: JobHandle
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    handle: JobHandle
    service: str
    #: JSON of what the runner said of the end, when the platform had not spoken yet; else empty.
    runner_word: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTuner:
    count: int


Call = Submit | Cancel | Forget | AskTuner


@dataclass(slots=True)
class Decisions:
    records: list[Record] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: When to look again although nothing happened; None: no such moment.
    wake_at_ms: int | None = None
    #: Training service → trials that would go there at once if it had room.
    wants: dict[str, int] = field(default_factory=dict)

    def wake_at(self, moment_ms: int) -> None:
        self.wake_at_ms = moment_ms if self.wake_at_ms is None else min(self.wake_at_ms, moment_ms)
