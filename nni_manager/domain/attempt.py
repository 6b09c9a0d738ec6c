"""An attempt of a trial: its stored record, and the training service's report on its job."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from nni_manager.domain.job import FINAL_STATES, JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode

#: State of an attempt that is recorded and perhaps submitted; submitting it again under its name is safe.
INTENT = "INTENT"

#: The account that a further attempt is counted on: what the platform did, or what the user's code did; or neither.
PLATFORM = "PLATFORM"
USER_CODE = "USER_CODE"
UNCOUNTED = "UNCOUNTED"

#: Beginning of the message of a trial that ended while its job could not be stopped.
MAY_STILL_RUN = "may still run on "


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A training service's report on a job: evidence, not a decision."""

    state: JobState
    exit_code: int | None = None
    #: Number of the signal that ended it.
    signal: int | None = None
    #: The platform's own reason, e.g. ``OOMKilled`` or ``Preempted``: shown to the user, never a basis of decisions.
    native_reason: str = ""
    #: The cause, by which the manager decides; None: state, exit code and stderr are enough. An adapter sets
    #: OUT_OF_MEMORY, by a table of native reasons; SUBMIT_REJECTED for a job with containers that cannot be made; and
    #: TIMEOUT with FAILED for a job that the platform's own time limit ended. The message then names the limit and the
    #: setting to raise. The manager sets the others, from its own actions and the reports of trial runners.
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
    #: Address of the job's page in a portal or console; empty: none.
    link: str = ""
    #: Where the job runs, for the user: machine, GPUs, pod; empty: unknown.
    place: str = ""
    #: Why this job cannot be observed now although others can; its state is UNKNOWN. Empty: the job can be observed,
    #: or its keeper is up and will report it; such a job is never given up.
    unreachable: str = ""
    #: The job is LOST because its submission was cut off or forgotten. Unless it was seen running, which the adapter
    #: may not know, the platform never ran it, and it is submitted again.
    was_never_taken: bool = False
    #: The job is LOST, was accepted and certainly never ran: the attempt is not counted, and the trial waits as if it
    #: had not been submitted.
    is_untaken: bool = False
    #: The job is PREEMPTED as its queue intends, such as for another's turn: `maxPlatformRetries` does not count it.
    is_uncounted: bool = False
    #: The submission that `was_never_taken` or `is_untaken` is about; filled in by the manager, as a later submission
    #: may have the same name.
    about: JobHandle | None = None

    def dated(self, apart_ms: int) -> Observation:
        """The observation with times in milliseconds since the epoch.

        `apart_ms`: wall clock minus steady clock of this machine (`domain.clock.apart_ms`)."""
        if not self.is_steady:
            return self
        started_ms, ended_ms = self.moments(apart_ms)
        return replace(self, started_ms=started_ms, ended_ms=ended_ms, is_steady=False)

    def moments(self, apart_ms: int) -> tuple[int | None, int | None]:
        """Its start and end in milliseconds since the epoch; cheaper than `dated`, with the same `apart_ms`."""
        if not self.is_steady:
            return self.started_ms, self.ended_ms
        return (
            None if self.started_ms is None else self.started_ms + apart_ms,
            None if self.ended_ms is None else self.ended_ms + apart_ms,
        )


class Attempt(NamedTuple):
    """An attempt of a trial; its fields have the names of their columns.

    A tuple for speed: each turn of an experiment reads one for every open trial.
    """

    trial_id: str
    #: From 1.
    number: int
    job_name: str
    #: `INTENT` or a JobState.
    state: str = INTENT
    #: `JobHandle.text`; None until the platform has answered.
    handle: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    #: The platform's own reason for the end.
    native_reason: str = ""
    #: A Reason; empty: none.
    cause: str = ""
    message: str = ""
    stderr_tail: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    #: keeper, push, pull or exec; empty: not known (yet).
    channel: str = ""
    #: JSON of the runner's report on the end, and when it was stored (milliseconds since the epoch).
    runner_exit: str | None = None
    runner_exit_ms: int | None = None
    #: When the end that the platform reported was stored, milliseconds since the epoch.
    final_seen_ms: int | None = None
    #: The training service that runs it.
    service: str = ""
    #: When the attempt was decided on, milliseconds since the epoch.
    intended_ms: int = 0
    #: The platform's own reason while it is PENDING; details are JSON.
    wait_code: str = ""
    wait_sentence: str = ""
    wait_details: str = "{}"
    #: Since when the job cannot be observed although its service can (milliseconds since the epoch), and why.
    unreachable_ms: int | None = None
    unreachable: str = ""
    #: Why some of its results were dropped; empty: none were.
    doubt: str = ""
    #: Its end does not count as a retry: `Observation.is_uncounted`; 0 or 1.
    is_uncounted: int = 0
    #: Since when its wait is hopeless (`Wait.is_hopeless`), milliseconds since the epoch; None: it is not.
    hopeless_ms: int | None = None

    @property
    def job_handle(self) -> JobHandle:
        """The handle of its job, which the platform has accepted."""
        assert self.handle is not None, "the platform had accepted the job"
        return JobHandle.parse(self.job_name, self.handle)

    @property
    def has_ended_there(self) -> bool:
        """Whether its platform has reported its end."""
        return self.state in FINAL_STATES

    @property
    def has_ended(self) -> bool:
        """Whether its platform or its runner has reported its end."""
        return self.runner_exit is not None or self.has_ended_there

    @property
    def end(self) -> Observation | None:
        """The platform's last report, on its end, or None."""
        if not self.has_ended_there:
            return None
        return Observation(
            state=JobState(self.state),
            exit_code=self.exit_code,
            signal=self.signal,
            native_reason=self.native_reason,
            cause=Reason(self.cause) if self.cause else None,
            message=self.message,
            stderr_tail=self.stderr_tail,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            is_uncounted=bool(self.is_uncounted),
        )

    @property
    def wait(self) -> Wait | None:
        """Why it does not run yet, if its platform reports that."""
        if not self.wait_code:
            return None
        return Wait(
            code=WaitCode(self.wait_code),
            sentence=self.wait_sentence,
            details=json.loads(self.wait_details),
            is_hopeless=self.hopeless_ms is not None,
        )

    @property
    def is_heard_again(self) -> bool:
        """Whether the job was observed again after it was given up as unreachable."""
        return self.final_seen_ms is not None or self.state != JobState.LOST
