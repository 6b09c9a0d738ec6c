"""The config section of `scripted`: what happens to which trial, and what befalls the platform itself.

Values arrive canonical: keys in camelCase, paths absolute, durations as seconds.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nni_manager.platform_kit.section_model import GpuIndices, Part, PlatformSection, marked, secret


def _seconds(description: str, default: float | None = None) -> Any:
    return Field(default=default, ge=0, description=description, json_schema_extra={"format": "seconds"})


class Match(Part):
    """The trials that a rule is for; everything that is set must fit."""

    sequence: int | None = Field(default=None, ge=0, description="Sequence number of the trial, from 0.")
    every: int | None = Field(default=None, ge=1, description="Every n-th trial: 5 fits the fifth, the tenth…")
    attempt: int | None = Field(default=None, ge=1, description="Number of the attempt, from 1.")


class Pending(Part):
    """The state of a job that waits for its start, as the platform tells it."""

    after: float = _seconds("When it begins to say so, counted from the job's submission.", 0.0)
    sentence: str = Field(min_length=1, description="For instance 0/3 nodes: insufficient nvidia.com/gpu.")
    code: Literal["GPU", "UNSCHEDULABLE", "IMAGE", "QUOTA"] = Field(
        default="UNSCHEDULABLE", description="GPU, UNSCHEDULABLE, IMAGE or QUOTA."
    )


class Rule(Part):
    """The course of the trials that `match` fits. Nothing set: it starts at once and succeeds after a second."""

    match: Match | None = Field(default=None, description="Which trials; not set: all.")
    delay: float = _seconds("How long a job waits before it starts, or is refused.", 0.0)
    duration: float | None = _seconds(
        "How long it runs with launch none (default 1s); with a runner, when after its start the platform does or "
        "says what the rule has it do or say."
    )
    exit_code: int | None = Field(default=None, ge=0, le=255, description="How the platform says that it ended.")
    signal: int | None = Field(default=None, ge=1, le=64, description="The signal that the platform says ended it.")
    reason: str = Field(default="", description="The platform's own word for the end, for instance OOMKilled.")
    stderr: str = Field(default="", max_length=2048, description="Last words of a job that failed, with launch none.")
    result: Any = Field(default=None, description="Final result, any JSON, with launch none.")
    results: list[Any] = Field(default=[], description="Intermediate results, evenly over the duration.")
    runner_version: str | None = Field(default=None, description="What the runner says it is, with launch none.")
    lost: bool = Field(default=False, description="The platform forgets the job.")
    preempted: bool = Field(default=False, description="The platform takes the job's place for another.")
    cancelled_by_person: bool = Field(default=False, description="A user ends the job in the platform's portal.")
    refuse_submit: str = Field(default="", description="The sentence that the job is refused with.")
    pending_reason: list[Pending] = Field(default=[], description="Why it waits, for as long as `delay` says.")
    replicas: int = Field(
        default=1, ge=1, le=16, description="Processes of a job, with launch process; the first one reports."
    )
    link: str = Field(default="", description="The portal's page of the job.")
    place: str = Field(default="", description="Where it runs, in words; of a job with a machine, the machine's.")

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        exited = self.exit_code is not None or self.signal is not None
        ends = (exited, self.lost, self.preempted, self.cancelled_by_person, bool(self.refuse_submit))
        if sum(ends) > 1 or (self.exit_code is not None and self.signal is not None):
            raise ValueError(
                "has more than one end; keep one of exitCode, signal, lost, preempted, cancelledByPerson and "
                "refuseSubmit"
            )
        return self


class Span(Part):
    """A stretch of time, counted from the experiment's beginning."""

    after: float = _seconds("When it begins, counted from when the experiment did.", 0.0)
    for_: float | None = Field(
        default=None,
        alias="for",
        gt=0,
        description="How long it lasts; not set: for ever.",
        json_schema_extra={"format": "seconds"},
    )


class NoRoom(Span):
    """The time in which it takes no jobs, although it can be asked."""

    sentence: str = Field(default="the quota is used up", min_length=1, description="Why.")


class RetryAfter(Span):
    """The time in which it wants to be left alone after every question that it has answered."""

    wait: float = _seconds("For how long.", 1.0)


class Hang(Span):
    """The time in which a question is never answered."""

    verb: Literal["submit", "observe", "cancel", "forget", "read_file"] = Field(
        description="Which: submit, observe, cancel, forget or read_file."
    )


class Unreachable(Span):
    """The time in which one of the machines cannot be asked, although the others can."""

    machine: str = Field(min_length=1, description="Its name.")


class Machine(Part):
    """A machine on which jobs run."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", description="Experiments that name the same machine share its places."
    )
    places: int = Field(ge=1, le=1024, description="Places (GPUs, say) that it has, with indices from 0.")


class Account(Part):
    """The account that the cluster counts calls of."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", description="Experiments that name the same account share its login and its pace."
    )
    calls: int = Field(default=10, ge=1, description="How many questions the account may ask…")
    per: float = Field(
        default=1.0, gt=0, description="…in any so long a time.", json_schema_extra={"format": "seconds"}
    )
    log: str | None = Field(
        default=None,
        description="File to which every login and every question adds a line.",
        json_schema_extra={"format": "path"},
    )


class ScriptedConfig(PlatformSection):
    """The fields of ``trainingService: {platform: scripted, …}``."""

    platform: Literal["scripted"] = Field(default="scripted", description="Always `scripted`.")
    trial_gpu_number: int | None = Field(
        default=None,
        ge=0,
        description="0 hides all GPUs; other numbers are places of a machine that a trial gets, where there are "
        "machines. Default: the top level's.",
    )
    launch: Literal["none", "process", "external"] = Field(
        default="none",
        description="none: jobs are pretended; process: a trial runner is started on this machine, in a fresh folder "
        "and a clean environment; external: you start the containers, from the files that each job writes.",
    )
    channel: Literal["push", "pull", "auto"] = Field(
        default="push",
        description="How results come back. push: runners post them; pull: the manager reads `storage`; auto: runners "
        "push when they can, otherwise they are read.",
    )
    storage: str | None = Field(
        default=None,
        description="The folder that jobs and manager share, for pull and auto. Default: one in the experiment's.",
        json_schema_extra={"format": "path"},
    )
    machines: list[Machine] = Field(
        default=[], description="Where jobs run, with launch process, each on a place of its own. Default: anywhere."
    )
    max_trial_number_per_gpu: int = Field(
        default=1, gt=0, description="How many trials may share a place at a time, where there are machines."
    )
    gpu_indices: GpuIndices | None = marked(
        'Indices of the places that may be used: [0, 1], 0 or "0,1". Default: all.', default=None, format="gpu-indices"
    )
    trials: list[Rule] = Field(default=[], description="What happens to which trial; the first rule that fits counts.")
    enter_outage: Span | None = Field(default=None, description="When it cannot be connected to.")
    outage: Span | None = Field(default=None, description="When the platform cannot be reached.")
    wrong_credentials: Span | None = Field(default=None, description="When it refuses every token but `acceptedToken`.")
    no_room: NoRoom | None = Field(default=None, description="When it takes no jobs.")
    retry_after: RetryAfter | None = Field(default=None, description="When it answers few questions.")
    hang: Hang | None = Field(default=None, description="When a question is never answered.")
    unreachable: list[Unreachable] = Field(default=[], description="When one of the machines cannot be asked.")
    unreachable_grace: float | None = _seconds("How long a job may be unreachable until it is lost; not set: for ever.")
    token: str | None = secret("What the cluster is shown with every call.", default=None)
    accepted_token: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256, in hex, of the only `token` that it accepts; with `wrongCredentials`, while that lasts.",
    )
    account: Account | None = Field(
        default=None, description="The account that the cluster counts calls of. Default: none."
    )
    slow_observe: float = _seconds("How long it takes to answer when it is asked about jobs.", 0.0)
    duplicate_events: bool = Field(
        default=False, description="Everything is told twice, and after every change the state before it once more."
    )
    late_events: float = _seconds("How much later than it happens the platform tells of it.", 0.0)

    @model_validator(mode="after")
    def _has_machines_that_fit(self) -> Self:
        names = [machine.name for machine in self.machines]
        if names and self.launch != "process":
            raise ValueError("has machines, which need launch: process; set that, or remove machines")
        if len(set(names)) < len(names):
            raise ValueError("names a machine twice; each has one entry in machines")
        if strangers := [span.machine for span in self.unreachable if span.machine not in names]:
            raise ValueError(f"has {strangers[0]} unreachable, which is none of its machines")
        if names and max(map(self.usable, self.machines)) < self.places_of_trial:
            raise ValueError(
                f"has no machine with the {self.places_of_trial} places that a trial needs; lower trialGpuNumber, or"
                " look at places and gpuIndices"
            )
        return self

    @property
    def places_of_trial(self) -> int:
        """The number of places, all of one machine, that a trial needs."""
        return 1 if self.trial_gpu_number is None else self.trial_gpu_number

    def usable(self, machine: Machine) -> int:
        """The number of places of a machine that trials may have."""
        indices = range(machine.places)
        return len([i for i in indices if self.gpu_indices is None or i in self.gpu_indices])
