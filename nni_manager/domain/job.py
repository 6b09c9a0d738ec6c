"""Jobs: what a platform runs for one attempt of a trial, and the evidence it gives about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait


class JobState(StrEnum):
    """A platform's state of a job, normalised. Each adapter maps its native words to these in one table."""

    #: Accepted, not started.
    PENDING = "PENDING"
    #: The user's command runs.
    RUNNING = "RUNNING"
    #: Ended with exit code 0.
    SUCCEEDED = "SUCCEEDED"
    #: Ended with another exit code or by a signal.
    FAILED = "FAILED"
    #: Ended because a person or we asked for it (here, in the platform's portal), and it reports no exit code.
    CANCELLED = "CANCELLED"
    #: The platform ended it: preempted, evicted, quota.
    PREEMPTED = "PREEMPTED"
    #: The platform does not know it any more, or cannot vouch for it.
    LOST = "LOST"
    #: The platform answers something that is in no table; nothing changes.
    UNKNOWN = "UNKNOWN"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED, JobState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandle:
    """The name by which a platform finds a job again. `data` is opaque to everyone else; the store keeps it."""

    #: Folder name of the adapter that made it.
    platform: str
    #: Raised by an adapter when the meaning of `data` changes.
    version: int
    job_name: str
    #: The adapter's own text, usually JSON.
    data: str = ""
    #: As `JobReport.link`, where it is known at once: a short job may be over before anybody looks.
    link: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A platform's observation of one job: evidence, never a verdict."""

    state: JobState
    exit_code: int | None = None
    #: Number of the signal that ended it.
    signal: int | None = None
    #: The platform's own word, e.g. ``OOMKilled`` or ``Preempted``: for people, nothing is decided by it.
    native_reason: str = ""
    #: The cause, by which the manager decides; None: state, exit code and last words say all. An adapter sets
    #: OUT_OF_MEMORY, by a table of native reasons, and SUBMIT_REJECTED of a job whose containers could never be made;
    #: the others are the manager's, of its own acts and of what trial runners report.
    cause: Reason | None = None
    #: One sentence for the user.
    message: str = ""
    #: Last lines of standard error, at most 2 KiB, of a job that failed.
    stderr_tail: str = ""
    #: Milliseconds since the epoch; by this machine's steady clock (`domain.clock.steady_ms`) where `is_steady`.
    started_ms: int | None = None
    ended_ms: int | None = None
    is_steady: bool = False
    #: Why a PENDING job does not run yet, where the platform says so.
    wait: Wait | None = None
    #: Where a person looks at the job: a portal's or console's page; empty: nowhere.
    link: str = ""
    #: Where it runs, in words: machine, GPUs, pod; empty: not known.
    place: str = ""
    #: Why this job cannot be asked about now, although others can; its state is UNKNOWN. Empty: it can, or whoever
    #: keeps it is there and will tell: it is not given up, however long that takes.
    unreachable: str = ""
    #: It is LOST because its submission broke off or was forgotten: unless it was seen to run, which the adapter may
    #: not know, the platform never ran it, and it is submitted again.
    was_never_taken: bool = False
    #: It is LOST, was accepted and certainly never ran: that is no attempt, and the trial waits as if it had not been
    #: submitted.
    is_untaken: bool = False
    #: The submission that one of these two is about, which the manager fills in: of a later one under the same name, at
    #: another place perhaps, it says nothing.
    about: JobHandle | None = None

    def dated(self, apart_ms: int) -> JobReport:
        """The report with times since the epoch, by how far the wall clock of this machine is ahead of its steady one
        (`domain.clock.apart_ms`). However often the one is set, what lies between the times and now stays the same."""
        if not self.is_steady:
            return self
        started_ms = None if self.started_ms is None else self.started_ms + apart_ms
        ended_ms = None if self.ended_ms is None else self.ended_ms + apart_ms
        return replace(self, started_ms=started_ms, ended_ms=ended_ms, is_steady=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Everything a platform needs to start one attempt of a trial."""

    #: Unique for ever; submitting a name twice means the same job.
    name: str
    experiment_id: str
    trial_id: str
    attempt: int
    sequence_id: int
    #: Shell text, as the user wrote it.
    command: str
    #: The record the trial reads, JSON: parameter_id, parameter_source, parameters, parameter_index.
    parameter_record: str
    #: The trial's own variables, from the trial protocol.
    protocol_environment: Mapping[str, str]
    #: The caller's environment at ``create``; only for platforms that run on the caller's machine.
    caller_environment: Mapping[str, str] = field(repr=False)
    #: Absolute path of the user's code on this machine.
    code_directory: str
    #: Absolute path of this attempt's folder on this machine.
    attempt_directory: str
    #: None: not restricted; 0: must see no GPU.
    gpu_number: int | None = None
    #: Seconds between SIGTERM and SIGKILL when it is cancelled.
    grace_period_s: float = 5.0
    #: Outbox → bytes of it that are stored, of a job that may have been submitted before and have run since.
    stored: Mapping[str, int] = field(default_factory=dict)
    #: It may have been submitted before: look the name up first where the platform does not do that itself.
    is_repeat: bool = False
    #: When it was decided to submit it, milliseconds since the epoch; no job of its name is older.
    intended_ms: int = 0
    #: The experiment's own, carried by the job as tag, label or variable: a job of this name with another nonce is
    #: somebody else's. Empty (attempts of earlier versions): not compared.
    nonce: str = ""
    #: See `platform_kit.contract.Host.storage_key`.
    storage_key: str = ""
    #: How the trial runner inside the job reaches us, its token included; empty where it does not. What else it is
    #: started with, its platform knows.
    runner_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
