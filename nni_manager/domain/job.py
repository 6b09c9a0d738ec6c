"""Jobs: what a platform runs for one attempt of a trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    #: As `domain.attempt.Observation.link`, where it is known at once: a short job may be over before anybody looks.
    link: str = field(default="", compare=False)

    @staticmethod
    def parse(job_name: str, text: str) -> JobHandle:
        """A handle from its `text`."""
        entry = json.loads(text)
        return JobHandle(platform=entry["platform"], version=entry["version"], job_name=job_name, data=entry["data"])

    @property
    def text(self) -> str:
        """The handle as it is stored beside its job's name."""
        return json.dumps({"platform": self.platform, "version": self.version, "data": self.data})


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
    #: How the trial runner inside the job reaches us, its token included; empty where it does not. What else it is
    #: started with, its platform knows.
    runner_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
