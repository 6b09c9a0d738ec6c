"""Trials, their attempts and results. SQLite builds them (`store.experiment.answers`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.domain.metrics import MetricType
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import ParameterSource
from nni_manager.domain.trial import StopRequest
from nni_manager.domain.trial_status import TrialStatus


class Wait(Wire):
    """Why a trial is WAITING."""

    code: WaitCode = Field(description="The kind of reason.")
    sentence: str = Field(description="What it waits for.")
    details: dict[str, JsonValue] = Field(description="The same for programs; its content depends on `code`.")


class Trial(Wire):
    """The evaluation of a set of parameters."""

    id: str = Field(description="Id of the trial.", examples=["a1b2c"])
    sequence_id: int = Field(description="0, 1, 2, …: the order in which trials were created.")
    status: TrialStatus = Field(description="Status in NNI's terms.")
    parameter_id: int | None = Field(description="The tuner's number of the parameters; null: a user gave them.")
    parameter_source: ParameterSource = Field(description="Where the parameters came from.")
    parameters: JsonValue = Field(description="Its parameters, usually an object of names and values.")
    created_ms: int = Field(description="Creation time, milliseconds since the epoch.")
    started_ms: int | None = Field(description="When the command of its current attempt started; null before.")
    ended_ms: int | None = Field(description="When it ended, milliseconds since the epoch; null before.")
    attempt: int = Field(description="Number of its current attempt, from 1.")
    stop_request: StopRequest | None = Field(description="Origin of the request to stop it; null: none.")
    reason: Reason | None = Field(description="Reason of its end; null: plain success, or not ended.")
    message: str = Field(description="How it ended, one sentence, or empty.")
    last_words: str = Field(description="Line of its stderr that shows why it failed; empty: none, or in `message`.")
    failure_key: str | None = Field(
        description="Equal for trials that failed in the same way: cause, exit code and last line, with numbers, paths"
        " and addresses normalized; null: it has not failed."
    )
    wait: Wait | None = Field(description="Why it is WAITING; null: it is not.")
    intermediates: int = Field(description="Number of intermediate results of its current attempt.")
    last_value: float | None = Field(
        description="Number of the latest intermediate result; null: none, or not a number."
    )
    final_value: float | None = Field(description="Number of the final result; null: none, NaN or infinite.")
    final_result: str | None = Field(description="JSON text of the final result as reported; null: none.")
    log_path: str = Field(description="Folder of its current attempt on the daemon's machine.")
    code_state: int | None = Field(
        description="Number of the code state that its current attempt runs in place, 1 for the first; null:"
        " it runs a copy, or the code was not recorded yet."
    )
    service: str | None = Field(description="Training service of its current attempt; null: none yet.")
    place: str = Field(description="Where its current attempt runs: machine, GPUs, pod; empty: unknown.")
    link: str = Field(description="The platform's page of its current attempt; empty: none.")


class RunnerExit(Wire):
    """The trial runner's report of the command's end."""

    exit_code: int | None = Field(description="Exit code of the command; null: ended by a signal.")
    signal: int | None = Field(description="Number of the signal that ended it; null: none.")
    stderr_tail: str = Field(description="Last lines of standard error, at most 2 KiB.")
    started_ms: int | None = Field(description="When the command started; null: it did not.")
    ended_ms: int | None = Field(description="When the command ended; null: unknown.")
    outboxes: dict[str, int] = Field(description="Size of each outbox in bytes; all bytes must arrive.")
    undelivered: list[str] = Field(default=[], description="Messages about results that its runner could not deliver.")
    was_started: bool = Field(default=True, description="False: the runner could not start the command.")
    container: str = Field(default="", description="Identity of the reporting container, or empty.")
    doubt: str = Field(default="", description="Why its logs could not be read completely, one sentence, or empty.")


class Interruption(Wire):
    """An interval in which a job was unreachable because its machine was away."""

    since_ms: int = Field(description="Beginning, milliseconds since the epoch.")
    until_ms: int = Field(description="End, milliseconds since the epoch.")
    sentence: str = Field(description="Why.")


class Attempt(Wire):
    """A job of a trial, and the evidence about its end."""

    number: int = Field(description="From 1.")
    job_name: str = Field(description="Name of the job on its platform.")
    state: str = Field(
        description="INTENT (about to be submitted), PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, PREEMPTED or LOST."
    )
    exit_code: int | None = Field(description="Exit code of the command; null: unknown.")
    signal: int | None = Field(description="Number of the signal that ended it; null: none.")
    reason: str = Field(description="The platform's term for the end, for users; may be empty.")
    cause: Reason | None = Field(
        description="Why it ended, if the manager knows it, also from the platform's term; null: see state, exit "
        "code and stderr."
    )
    message: str = Field(description="Message of the platform, or empty.")
    stderr_tail: str = Field(description="Last lines of standard error, at most 2 KiB, of a failed job.")
    given_up: str | None = Field(
        description="Why another attempt followed: PLATFORM, USER_CODE or UNCOUNTED; null: none."
    )
    submitted_ms: int = Field(description="Time of the decision to submit it, milliseconds since the epoch.")
    started_ms: int | None = Field(description="When its command started; null: not yet, or never.")
    ended_ms: int | None = Field(description="When it ended; null before.")
    channel: Literal["keeper", "push", "pull", "exec"] | None = Field(
        description="How its results arrive: read by the keeper, pushed by its trial runner, pulled from its files, "
        "or read by commands in its container; null: unknown (yet)."
    )
    runner_version: str | None = Field(
        description="Version of its trial runner; `unknown`: not reported; null: no runner (yet)."
    )
    runner_exit: RunnerExit | None = Field(
        description="The runner's report of the end, in addition to the platform's above; null: none (yet)."
    )
    service: str = Field(description="Its training service.")
    place: str = Field(description="Where it runs: machine, GPUs, pod; empty: unknown.")
    link: str = Field(description="The platform's page of the job; empty: none.")
    wait: Wait | None = Field(description="The platform's last reason for not starting it; null: none.")
    unreachable_ms: int | None = Field(
        description="Since when it is unreachable although its training service is reachable; null: it is reachable."
    )
    unreachable: str = Field(description="Why it is unreachable, one sentence, or empty.")
    interruptions: list[Interruption] = Field(description="Earlier such intervals, at most 100.")
    containers: int = Field(description="Number of its registered containers; the newest counts.")
    epoch: int = Field(description="How often a new container has followed an earlier one.")


class TrialWithAttempts(Trial):
    repeats: str | None = Field(description="Id of the trial that it repeats; null: none.")
    attempts: list[Attempt] = Field(description="By number.")


class TrialList(Wire):
    total: int = Field(description="Number of matching trials, regardless of `limit` and `offset`.")
    trials: list[Trial] = Field(description="The requested page.")


class TrialFile(Wire):
    name: str = Field(
        description="Its path below the attempt's folder; `checkpoint/…`: in the trial's checkpoint folder."
    )
    place: Literal["here", "service"] = Field(
        description="here: on the daemon's machine; service: on its training service."
    )


class TrialFileList(Wire):
    attempt: int = Field(description="Number of the attempt with these files.")
    files: list[TrialFile] = Field(description="By name.")
    why: str = Field(description="Why files on other machines are missing in the list; empty: complete.")


class NewTrial(Sent):
    parameters: JsonValue = Field(description="Its parameters, usually an object of names and values.")
    repeats: str = Field(default="", description="Id of the trial that this one repeats, possibly changed.")


class AddedTrial(Wire):
    id: str = Field(description="Id of the new trial.")
    sequence_id: int = Field(description="Its sequence id.")


class Metric(Wire):
    """A reported result."""

    id: int = Field(description="Grows in the order of storing; use the last one as `after`.")
    trial_id: str = Field(description="The trial that reported it.")
    attempt: int = Field(description="Number of the attempt.")
    type: MetricType = Field(description="PERIODICAL: an intermediate result; FINAL: the final one.")
    sequence: int = Field(description="0, 1, …: its place among the attempt's intermediate results; 0 for a final one.")
    step: int | None = Field(description="The reported step of an intermediate result; null: none.")
    stored_ms: int = Field(description="When it was stored, milliseconds since the epoch.")
    result: str = Field(description="JSON text of the value as reported; may contain NaN and Infinity.")
    value: float | None = Field(description="Its number: itself, or its entry `default`; null: none, NaN or infinite.")
    outbox: str = Field(description="Its source file below the attempt's folder.")
    number: int = Field(description="Its 0-based line in that file.")
    epoch: int = Field(
        description="0, 1, …: how often a new container of the attempt had followed an earlier one. Less than the "
        "attempt's: from an earlier container."
    )


class MetricList(Wire):
    metrics: list[Metric] = Field(description="In the order of storing.")
