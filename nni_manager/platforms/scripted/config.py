"""The config section of `scripted`: what happens to each trial, and which faults the platform has.

Values arrive canonical: keys in camelCase, paths absolute, durations as seconds.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nni_manager.platform_kit.section_model import GpuIndices, Part, PlatformSection, marked, secret


def _seconds(description: str, default: float | None = None) -> Any:
    return Field(default=default, ge=0, description=description, json_schema_extra={"format": "seconds"})


class Match(Part):
    """The trials to which a rule applies; all fields that are set must match."""

    sequence: int | None = Field(default=None, ge=0, description="Sequence number of the trial, from 0.")
    every: int | None = Field(default=None, ge=1, description="Every n-th trial: 5 matches the fifth, the tenth…")
    attempt: int | None = Field(default=None, ge=1, description="Number of the attempt, from 1.")


class Pending(Part):
    """The reason that the platform reports for a job that waits for its start."""

    after: float = _seconds("Time from the job's submission until the reason is reported, in seconds.", 0.0)
    sentence: str = Field(
        min_length=1, description="Text of the reason, such as `0/3 nodes: insufficient nvidia.com/gpu`."
    )
    code: Literal["GPU", "UNSCHEDULABLE", "IMAGE", "QUOTA", "QUEUED", "HELD"] = Field(
        default="UNSCHEDULABLE",
        description="Wait code: `GPU`, `UNSCHEDULABLE`, `IMAGE`, `QUOTA`, `QUEUED` or `HELD`.",
    )
    hopeless: bool = Field(default=False, description="The platform will never start the job as it is.")


class Span(Part):
    """An interval; the field says what it is counted from."""

    after: float = _seconds("Start of the interval, in seconds.", 0.0)
    for_: float | None = Field(
        default=None,
        alias="for",
        gt=0,
        description="Duration in seconds. Not set: unlimited.",
        json_schema_extra={"format": "seconds"},
    )


class Rule(Part):
    """The course of the trials that `match` selects. By default a trial starts at once and succeeds after 1 s."""

    match: Match | None = Field(default=None, description="Trials to which the rule applies. Default: all.")
    delay: float = _seconds("Time before a job starts or is refused, in seconds.", 0.0)
    duration: float | None = _seconds(
        "Run time with `launch: none` (default: 1 s). With a runner: time from the start until the event of this rule, "
        "in seconds."
    )
    exit_code: int | None = Field(default=None, ge=0, le=255, description="Exit code that the platform reports.")
    signal: int | None = Field(
        default=None, ge=1, le=64, description="Signal that ended the job, as the platform reports it."
    )
    reason: str = Field(default="", description="The platform's reason for the end, such as `OOMKilled`.")
    stderr: str = Field(
        default="", max_length=2048, description="End of the stderr of a failed job, with `launch: none`."
    )
    result: Any = Field(default=None, description="Final result, any JSON, with `launch: none`.")
    results: list[Any] = Field(default=[], description="Intermediate results, spread evenly over the duration.")
    runner_version: str | None = Field(
        default=None, description="Version that the runner reports, with `launch: none`."
    )
    lost: bool = Field(default=False, description="The platform forgets the job.")
    preempted: bool = Field(default=False, description="The platform preempts the job.")
    uncounted: bool = Field(
        default=False, description="`maxPlatformRetries` does not count the preemption, as if its queue intended it."
    )
    cancelled_by_person: bool = Field(default=False, description="A user cancels the job in the platform's portal.")
    timed_out: bool = Field(default=False, description="The platform's own time limit ends the job.")
    notice: float | None = _seconds(
        "Time after its start at which the platform announces that it will take the job away (SIGUSR1), in seconds; "
        "with `launch: process`."
    )
    requeue: float | None = _seconds(
        "Time after its start at which the platform ends the job and runs it again under its id, in seconds; with "
        "`launch: process`."
    )
    overlooked: Span | None = Field(
        default=None,
        description="Time in which the platform's list lacks the job, counted from its submission.",
    )
    refuse_submit: str = Field(default="", description="Message with which the platform refuses the job.")
    pending_reason: list[Pending] = Field(default=[], description="Reasons reported while the job waits for `delay`.")
    replicas: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Number of processes of a job, with `launch: process`; the first one reports.",
    )
    link: str = Field(default="", description="Address of the job's page in the portal.")
    place: str = Field(
        default="", description="Place where the job runs, as text. Replaced by the machine's name if it has a machine."
    )

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        exited = self.exit_code is not None or self.signal is not None
        ends = (exited, self.lost, self.preempted, self.cancelled_by_person, self.timed_out, bool(self.refuse_submit))
        if sum(ends) > 1 or (self.exit_code is not None and self.signal is not None):
            raise ValueError(
                "has more than one end; keep one of exitCode, signal, lost, preempted, cancelledByPerson, timedOut and "
                "refuseSubmit"
            )
        return self


class NoRoom(Span):
    """The time in which the platform answers, but accepts no jobs."""

    sentence: str = Field(default="the quota is used up", min_length=1, description="Reason that the platform reports.")


class RetryAfter(Span):
    """The time in which the platform demands a pause after every answer."""

    wait: float = _seconds("Pause in seconds.", 1.0)


class Hang(Span):
    """The time in which calls of one kind never return."""

    verb: Literal["submit", "observe", "cancel", "forget", "read_file"] = Field(
        description="Call that hangs: `submit`, `observe`, `cancel`, `forget` or `read_file`."
    )


class Unreachable(Span):
    """The time in which one machine cannot be reached, but the others can."""

    machine: str = Field(min_length=1, description="Name of the machine.")


class Machine(Part):
    """A machine on which jobs run."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", description="Name. Experiments with the same machine name share its places."
    )
    places: int = Field(ge=1, le=1024, description="Number of places, such as GPUs; their indices begin at 0.")


class Account(Part):
    """The account whose calls the cluster counts."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Name. Experiments with the same account share its login and rate limit.",
    )
    calls: int = Field(default=10, ge=1, description="Maximum number of calls within `per`.")
    per: float = Field(
        default=1.0, gt=0, description="Length of that time window in seconds.", json_schema_extra={"format": "seconds"}
    )
    log: str | None = Field(
        default=None,
        description="File to which every login and every call appends a line.",
        json_schema_extra={"format": "path"},
    )


class ScriptedConfig(PlatformSection):
    """The fields of ``trainingService: {platform: scripted, …}``."""

    platform: Literal["scripted"] = Field(default="scripted", description="Always `scripted`.")
    trial_gpu_number: int | None = Field(
        default=None,
        ge=0,
        description="Number of places of a machine that a trial gets, if `machines` is set. 0 hides all GPUs. "
        "Default: the top level's.",
    )
    launch: Literal["none", "process", "external"] = Field(
        default="none",
        description="`none`: simulate jobs. `process`: start a trial runner on this machine, in a new folder and a "
        "clean environment. `external`: you start the containers from the files that each job writes.",
    )
    channel: Literal["push", "pull", "auto"] = Field(
        default="push",
        description="Transport of results. `push`: runners send them. `pull`: the manager reads `storage`. `auto`: "
        "`push` if possible, else `pull`.",
    )
    storage: str | None = Field(
        default=None,
        description="Folder that jobs and manager share, for `pull` and `auto`. Default: a folder in the experiment's.",
        json_schema_extra={"format": "path"},
    )
    machines: list[Machine] = Field(
        default=[], description="Machines on whose places jobs run, with `launch: process`. Default: no limit."
    )
    max_trial_number_per_gpu: int = Field(
        default=1, gt=0, description="Maximum number of trials that share a place, with `machines`."
    )
    gpu_indices: GpuIndices | None = marked(
        'Indices of the places that trials may use: `[0, 1]`, `0` or `"0,1"`. Default: all.',
        default=None,
        format="gpu-indices",
    )
    trials: list[Rule] = Field(default=[], description="Rules for trials; the first rule that matches applies.")
    enter_outage: Span | None = Field(default=None, description="Time in which connecting fails.")
    outage: Span | None = Field(default=None, description="Time in which the platform is unreachable.")
    wrong_credentials: Span | None = Field(
        default=None, description="Time in which it refuses every token except `acceptedToken`."
    )
    no_room: NoRoom | None = Field(default=None, description="Time in which it accepts no jobs.")
    retry_after: RetryAfter | None = Field(default=None, description="Time in which it demands pauses between calls.")
    hang: Hang | None = Field(default=None, description="Time in which calls of one kind never return.")
    unreachable: list[Unreachable] = Field(default=[], description="Times in which a machine is unreachable.")
    unreachable_grace: float | None = _seconds(
        "Time that a job may be unreachable before it is lost, in seconds. Not set: unlimited."
    )
    token: str | None = secret("Token sent with every call.", default=None)
    accepted_token: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256, in hex, of the only `token` that it accepts; with `wrongCredentials`, only in that time.",
    )
    account: Account | None = Field(default=None, description="Account whose calls the cluster counts. Default: none.")
    slow_observe: float = _seconds("Time that it takes to report the state of jobs, in seconds.", 0.0)
    duplicate_events: bool = Field(
        default=False, description="Report every event twice, and repeat the previous state after every change."
    )
    late_events: float = _seconds("Delay between an event and its report, in seconds.", 0.0)

    confirm_loss: float = _seconds(
        "Time for which the list of jobs must lack a job before it is lost, in seconds.", 0.0
    )

    @model_validator(mode="after")
    def _runs_again_what_it_can(self) -> Self:
        for rule in self.trials:
            is_batch = rule.notice is not None or rule.requeue is not None
            if is_batch and (self.launch != "process" or rule.replicas > 1):
                raise ValueError(
                    "requires launch: process, and one replica, for notice and requeue; set that, or remove them from"
                    " trials"
                )
        return self

    @model_validator(mode="after")
    def _has_machines_that_fit(self) -> Self:
        names = [machine.name for machine in self.machines]
        if names and self.launch != "process":
            raise ValueError("requires launch: process with machines; set it, or remove machines")
        if len(set(names)) < len(names):
            raise ValueError("has a machine twice; keep one entry of each in machines")
        if strangers := [span.machine for span in self.unreachable if span.machine not in names]:
            raise ValueError(f"has {strangers[0]} unreachable, which is not one of its machines")
        if names and max(map(self.usable, self.machines)) < self.places_of_trial:
            raise ValueError(
                f"has no machine with the {self.places_of_trial} places that a trial needs; lower trialGpuNumber, or"
                " check places and gpuIndices"
            )
        return self

    @property
    def places_of_trial(self) -> int:
        """The number of places, all on one machine, that a trial needs."""
        return 1 if self.trial_gpu_number is None else self.trial_gpu_number

    def usable(self, machine: Machine) -> int:
        """The number of a machine's places that trials may use."""
        indices = range(machine.places)
        return len([i for i in indices if self.gpu_indices is None or i in self.gpu_indices])
