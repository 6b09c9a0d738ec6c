"""Jobs, which a platform runs for attempts of trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class JobState(StrEnum):
    """The state of a job, the same for all platforms. Each adapter has a table of its native states."""

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
    #: The platform does not know the job any more, or cannot say what became of it.
    LOST = "LOST"
    #: The platform answers a state that is in no table; nothing changes.
    UNKNOWN = "UNKNOWN"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATES


#: Strings, too, so that stored values are compared without conversion to JobState.
FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED, JobState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandle:
    """The key by which an adapter finds a job again. `data` is opaque to all other code; it is stored."""

    #: Folder name of the adapter that made it.
    platform: str
    #: Raised by an adapter when the meaning of `data` changes.
    version: int
    job_name: str
    #: The adapter's own text, usually JSON.
    data: str = ""
    #: As `domain.attempt.Observation.link`, where known at submission: a short job may end before it is observed.
    link: str = field(default="", compare=False)

    @staticmethod
    def parse(job_name: str, text: str) -> JobHandle:
        """A handle from its `text`."""
        entry = json.loads(text)
        return JobHandle(platform=entry["platform"], version=entry["version"], job_name=job_name, data=entry["data"])

    @property
    def text(self) -> str:
        """The stored text of the handle."""
        return json.dumps({"platform": self.platform, "version": self.version, "data": self.data})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Everything that a platform needs to start an attempt of a trial."""

    #: Unique for ever; submitting a name twice yields one job.
    name: str
    experiment_id: str
    trial_id: str
    attempt: int
    sequence_id: int
    #: Shell text: `prelude`, then what the user wrote.
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
    #: Whether it may have been submitted before: an adapter looks the name up first, unless its platform does.
    is_repeat: bool = False
    #: When it was decided to submit it, milliseconds since the epoch; no job of its name is older.
    intended_ms: int = 0
    #: Random text of the experiment, carried by the job as tag, label or variable: a job of this name with another
    #: nonce belongs to another experiment. Empty (attempts of earlier versions): not compared.
    nonce: str = ""
    #: See `platform_kit.contract.Host.storage_key`.
    storage_key: str = ""
    #: The trial whose checkpoint it begins with, where it has none of its own, as `prelude` sees to; empty: none.
    continues: str = ""
    #: Shell text before the command of the process that reports, also where a section has a command of its own.
    prelude: str = ""
    #: Variables by which the trial runner reaches the manager, its token included; empty: it does not. The adapter
    #: adds others.
    runner_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
