"""The config section of `scripted`: what happens to which trial, and what befalls the platform itself.

Values arrive canonical: keys in camelCase, paths absolute, durations as seconds.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nni_manager.platform_kit.section_model import Part, PlatformSection, secret


def _seconds(description: str, default: float | None = None) -> Any:
    return Field(default=default, ge=0, description=description, json_schema_extra={"format": "seconds"})


class Match(Part):
    """Which trials a rule is for; everything that is set must fit."""

    sequence: int | None = Field(default=None, ge=0, description="Sequence number of the trial, from 0.")
    every: int | None = Field(default=None, ge=1, description="Every n-th trial: 5 fits the fifth, the tenth…")
    attempt: int | None = Field(default=None, ge=1, description="Number of the attempt, from 1.")


class Rule(Part):
    """What happens to the trials that `match` fits. Nothing set: it starts at once and succeeds after a second."""

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
    cancelled_by_platform: bool = Field(default=False, description="The platform ends the job, nobody asked.")
    refuse_submit: str = Field(default="", description="The sentence that the job is refused with.")

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        exited = self.exit_code is not None or self.signal is not None
        ends = (exited, self.lost, self.preempted, self.cancelled_by_platform, bool(self.refuse_submit))
        if sum(ends) > 1 or (self.exit_code is not None and self.signal is not None):
            raise ValueError(
                "has more than one end; keep one of exitCode, signal, lost, preempted, cancelledByPlatform and "
                "refuseSubmit"
            )
        return self


class Span(Part):
    """A stretch of time, counted from the experiment's beginning."""

    after: float = _seconds("When it begins, counted from when the experiment did.", 0.0)
    for_: float | None = Field(
        default=None, alias="for", gt=0, description="How long it lasts; not set: for ever.",
        json_schema_extra={"format": "seconds"},
    )  # fmt: skip


class ScriptedConfig(PlatformSection):
    """``trainingService: {platform: scripted, …}``."""

    platform: Literal["scripted"] = Field(default="scripted", description="Always `scripted`.")
    trial_gpu_number: int | None = Field(
        default=None, ge=0, description="0 hides all GPUs; other numbers change nothing. Default: the top level's."
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
    trials: list[Rule] = Field(default=[], description="What happens to which trial; the first rule that fits counts.")
    outage: Span | None = Field(default=None, description="When the platform cannot be reached.")
    wrong_credentials: Span | None = Field(default=None, description="When it refuses our credentials.")
    token: str | None = secret("What the cluster is shown with every call.", default=None)
    accepted_token: str | None = Field(
        default=None, pattern="^[0-9a-f]{64}$", description="SHA-256, in hex, of the only `token` that it accepts."
    )
    slow_observe: float = _seconds("How long it takes to answer when it is asked about jobs.", 0.0)
    duplicate_events: bool = Field(
        default=False, description="Everything is told twice, and after every change the state before it once more."
    )
    late_events: float = _seconds("How much later than it happens the platform tells of it.", 0.0)
