"""Trials, their attempts and results. SQLite builds them (`store.experiment.answers`); these models describe them."""

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
    details: dict[str, JsonValue] = Field(description="The same for programs; what is in it goes by the code.")


class Trial(Wire):
    """One set of parameters that is evaluated."""

    id: str = Field(description="Id of the trial.", examples=["a1b2c"])
    sequence_id: int = Field(description="0, 1, 2, …: the order in which trials were made.")
    status: TrialStatus = Field(description="Status in NNI's words.")
    parameter_id: int | None = Field(description="The tuner's number of the parameters; null: a person gave them.")
    parameter_source: ParameterSource = Field(description="Where the parameters came from.")
    parameters: JsonValue = Field(description="What the trial gets; usually an object of names and values.")
    created_ms: int = Field(description="When it was made, milliseconds since the epoch.")
    started_ms: int | None = Field(description="When the command of its current attempt started; null before.")
    ended_ms: int | None = Field(description="When it ended, milliseconds since the epoch; null before.")
    attempt: int = Field(description="Number of its current attempt, from 1.")
    stop_request: StopRequest | None = Field(description="What asked it to end; null: nothing did.")
    reason: Reason | None = Field(description="Why it ended as it did; null for plain success and open trials.")
    message: str = Field(description="How it ended, one sentence; empty when there is nothing to say.")
    last_words: str = Field(
        description="Line of its stderr that tells why it failed; empty: none, or `message` tells it."
    )
    failure_key: str | None = Field(
        description="Trials that failed in the same way have the same one: cause, exit code and last words, with"
        " numbers, paths and addresses made alike; null: it has not failed."
    )
    wait: Wait | None = Field(description="Why it is WAITING; null when it is not.")
    intermediates: int = Field(description="How many intermediate results its current attempt reported.")
    last_value: float | None = Field(description="Number of the latest intermediate result; null: none, or no number.")
    final_value: float | None = Field(description="Number of the final result; null: none, NaN or infinite.")
    final_result: str | None = Field(description="JSON text of the final result as reported; null: none.")
    log_path: str = Field(description="Folder of its current attempt on the daemon's machine.")
    code_state: int | None = Field(
        description="Number of the state of the code that its current attempt ran in place, 1 for the first; null:"
        " it runs a copy, or the code was not known yet."
    )
    service: str | None = Field(description="Training service of its current attempt; null: it was given to none yet.")
    place: str = Field(description="Where its current attempt runs: machine, GPUs, pod; empty: not known.")
    link: str = Field(description="The platform's own page of its current attempt; empty: there is none.")


class RunnerExit(Wire):
    """The trial runner's report of the command's end."""

    exit_code: int | None = Field(description="Exit code of the command; null: a signal ended it.")
    signal: int | None = Field(description="Number of the signal that ended it; null: none did.")
    stderr_tail: str = Field(description="Last lines of standard error, at most 2 KiB.")
    started_ms: int | None = Field(description="When the command started; null: it did not.")
    ended_ms: int | None = Field(description="When the command ended; null: not known.")
    outboxes: dict[str, int] = Field(description="Bytes of results in each outbox: so many must come.")
    undelivered: list[str] = Field(default=[], description="Sentences about what its runner could not deliver.")
    was_started: bool = Field(default=True, description="False: the runner could not start the command.")
    container: str = Field(default="", description="Identity of the container that said so; empty: it has none.")
    doubt: str = Field(default="", description="What could not be read of its logs, one sentence; else empty.")


class Interruption(Wire):
    """A while in which a job could not be asked about, as its machine was away."""

    since_ms: int = Field(description="When that was noticed, milliseconds since the epoch.")
    until_ms: int = Field(description="When it could be asked about again.")
    sentence: str = Field(description="Why.")


class Attempt(Wire):
    """One job of a trial, and the evidence of how it ended."""

    number: int = Field(description="From 1.")
    job_name: str = Field(description="Name of the job on its platform.")
    state: str = Field(
        description="INTENT (about to be submitted), PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, PREEMPTED or LOST."
    )
    exit_code: int | None = Field(description="Exit code of the command; null: none is known.")
    signal: int | None = Field(description="Number of the signal that ended it; null: none did.")
    reason: str = Field(description="The platform's own term for the end, for people; may be empty.")
    cause: Reason | None = Field(
        description="Why it ended, where the manager knows it itself or from the platform's term; null: state, exit "
        "code and last words say all."
    )
    message: str = Field(description="One sentence of the platform, or empty.")
    stderr_tail: str = Field(description="Last lines of standard error, at most 2 KiB, of a job that failed.")
    given_up: str | None = Field(description="Why another attempt followed: PLATFORM or USER_CODE; null: none did.")
    submitted_ms: int = Field(description="When it was decided on, milliseconds since the epoch.")
    started_ms: int | None = Field(description="When its command started; null: not yet, or never.")
    ended_ms: int | None = Field(description="When it ended; null before.")
    channel: Literal["keeper", "push", "pull", "exec"] | None = Field(
        description="How its results come: followed by the keeper, pushed by its trial runner, pulled from its files, "
        "or read by commands in its container; null: not known (yet)."
    )
    runner_version: str | None = Field(
        description="Version that its trial runner named; `unknown`: it named none; null: there is none, or not yet."
    )
    runner_exit: RunnerExit | None = Field(
        description="The runner's report of the end, beside the platform's above; null: none (yet)."
    )
    service: str = Field(description="Training service that it was given to.")
    place: str = Field(description="Where it runs: machine, GPUs, pod; empty: not known.")
    link: str = Field(description="The platform's own page of the job; empty: there is none.")
    wait: Wait | None = Field(description="Why the platform does not start it, as it last said; null: it said nothing.")
    unreachable_ms: int | None = Field(
        description="Since when it cannot be asked about although its training service can; null: it can."
    )
    unreachable: str = Field(description="Why it cannot be asked about, one sentence; else empty.")
    interruptions: list[Interruption] = Field(description="Earlier such times, at most 100.")
    containers: int = Field(description="How many containers of it have registered; the newest one counts.")
    epoch: int = Field(description="How often a new container has begun its results afresh.")


class TrialWithAttempts(Trial):
    repeats: str | None = Field(description="Id of the trial that it repeats; null: none.")
    attempts: list[Attempt] = Field(description="By number.")


class TrialList(Wire):
    total: int = Field(description="How many trials match, whatever `limit` and `offset`.")
    trials: list[Trial] = Field(description="The page that was asked for.")


class TrialFile(Wire):
    name: str = Field(
        description="Its path below the attempt's folder; `checkpoint/…`: in the trial's checkpoint folder."
    )
    place: Literal["here", "service"] = Field(
        description="here: on the daemon's machine; service: its training service is asked."
    )


class TrialFileList(Wire):
    attempt: int = Field(description="Number of the attempt that the files belong to.")
    files: list[TrialFile] = Field(description="By name.")
    why: str = Field(description="Why files elsewhere are missing in the list; empty: none is.")


class NewTrial(Sent):
    parameters: JsonValue = Field(description="What the trial gets: usually an object of names and values.")
    repeats: str = Field(default="", description="Id of the trial that this one repeats, as it was or changed.")


class AddedTrial(Wire):
    id: str = Field(description="Id of the new trial.")
    sequence_id: int = Field(description="Its sequence id.")


class Metric(Wire):
    """One reported value."""

    id: int = Field(description="Grows in the order of storing; ask for what comes `after` the last one you have.")
    trial_id: str = Field(description="The trial that reported it.")
    attempt: int = Field(description="Which of its attempts.")
    type: MetricType = Field(description="PERIODICAL: an intermediate result; FINAL: the final one.")
    sequence: int = Field(description="0, 1, …: its place among the attempt's intermediate results; 0 for a final one.")
    step: int | None = Field(description="The step that was reported with an intermediate result; null: none was.")
    stored_ms: int = Field(description="When it was stored, milliseconds since the epoch.")
    result: str = Field(description="JSON text of the value as reported; NaN and Infinity may stand in it.")
    value: float | None = Field(description="Its number: itself, or its entry `default`; null: none, NaN or infinite.")
    outbox: str = Field(description="File below the attempt's folder that it came from.")
    number: int = Field(description="Its 0-based line in that file.")
    epoch: int = Field(
        description="0, 1, …: how often a new container of the attempt had begun its results afresh before. Less than "
        "the attempt's: of a container that is gone."
    )


class MetricList(Wire):
    metrics: list[Metric] = Field(description="In the order they were stored.")
