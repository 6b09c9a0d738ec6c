"""What a plan may decide: records, written in the plan's own transaction, and calls, made after its commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.job import JobHandle
from nni_manager.domain.trial import Reason, StopRequest, TrialStatus
from nni_manager.domain.wait import WaitCode


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

    trial_id: str
    attempt: int
    job_name: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpAttempt:
    """The attempt is fenced off and the trial waits for another one."""

    trial_id: str
    attempt: int
    #: `store.jobs.PLATFORM` or `store.jobs.USER_CODE`.
    account: str
    sentence: str
    #: What platform and runner said, when they disagree.
    disagreement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWait:
    trial_id: str
    code: WaitCode
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    status: ExperimentStatus
    #: Why, when it is ERROR.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOnHold:
    hold: Hold


Record = (
    AddTrial
    | StartAttempt
    | StartTrial
    | LoseSight
    | AskStop
    | Finish
    | GiveUpAttempt
    | SetWait
    | SetStatus
    | PutOnHold
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    job_name: str
    trial_id: str
    attempt: int
    sequence_id: int
    #: JSON, as the trial reads it.
    record: str
    #: Outbox → bytes stored, when this is not its first submission.
    stored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    handle: JobHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    handle: JobHandle
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

    def wake_at(self, moment_ms: int) -> None:
        self.wake_at_ms = moment_ms if self.wake_at_ms is None else min(self.wake_at_ms, moment_ms)
