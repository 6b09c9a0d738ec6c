"""An attempt of a trial: what is stored of it, and what a training service says of its job now."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode

#: State of an attempt that was decided on and perhaps submitted: submit it (again) under its name.
INTENT = "INTENT"

#: Why another attempt follows an ended one: on whose account it is.
PLATFORM = "PLATFORM"
USER_CODE = "USER_CODE"

#: The beginning of the message of a trial that ended while its job could not be asked to end.
MAY_STILL_RUN = "may still run on "


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a training service says of one job now: evidence, never a verdict."""

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

    def dated(self, apart_ms: int) -> Observation:
        """The report with times since the epoch, by how far the wall clock of this machine is ahead of its steady one
        (`domain.clock.apart_ms`). However often the one is set, what lies between the times and now stays the same."""
        if not self.is_steady:
            return self
        started_ms = None if self.started_ms is None else self.started_ms + apart_ms
        ended_ms = None if self.ended_ms is None else self.ended_ms + apart_ms
        return replace(self, started_ms=started_ms, ended_ms=ended_ms, is_steady=False)


class Attempt(NamedTuple):
    """One attempt of a trial. Its fields bear the names of the columns that they are stored in.

    A tuple, as each turn of an experiment reads one for every open trial.
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
    #: The platform's own word for the end.
    native_reason: str = ""
    #: A Reason; empty: none.
    cause: str = ""
    message: str = ""
    stderr_tail: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    #: keeper, push, pull or exec; empty: not known (yet).
    channel: str = ""
    #: JSON of the runner's word about the end, and when it was stored.
    runner_exit: str | None = None
    runner_exit_ms: int | None = None
    #: When the platform's end of it was stored.
    final_seen_ms: int | None = None
    #: The training service it went to.
    service: str = ""
    #: When it was decided on, milliseconds since the epoch.
    intended_ms: int = 0
    #: The platform's own reason while it is PENDING; details are JSON.
    wait_code: str = ""
    wait_sentence: str = ""
    wait_details: str = "{}"
    #: Since when it cannot be asked about although its service can, and why.
    unreachable_ms: int | None = None
    unreachable: str = ""
    #: Why some of its results were dropped; empty: none were.
    doubt: str = ""

    @property
    def job_handle(self) -> JobHandle:
        """The handle of its job, which the platform has accepted."""
        assert self.handle is not None, "its platform had taken it"
        return JobHandle.parse(self.job_name, self.handle)

    @property
    def has_ended_there(self) -> bool:
        """Whether its platform has reported its end."""
        return self.state != INTENT and JobState(self.state).is_final

    @property
    def has_ended(self) -> bool:
        """Whether its platform or its runner has reported its end."""
        return self.runner_exit is not None or self.has_ended_there

    @property
    def end(self) -> Observation | None:
        """The platform's last report, on its end; None while it reports none."""
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
        )

    @property
    def wait(self) -> Wait | None:
        """Why it does not run yet, where its platform says so."""
        if not self.wait_code:
            return None
        return Wait(code=WaitCode(self.wait_code), sentence=self.wait_sentence, details=json.loads(self.wait_details))

    @property
    def is_heard_again(self) -> bool:
        """Whether something was heard of its job after it was given up because that could not be asked about."""
        return self.final_seen_ms is not None or self.state != JobState.LOST
