"""Training services as such: where trials would go, and what closed experiments left there."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from nni_manager.api.schemas.wire import Wire


class Clean(Wire):
    """What is to be ended."""

    model_config = ConfigDict(extra="forbid")

    platforms: list[str] = Field(default_factory=list, description="Only on these platforms; empty: on all.")


class Cleaned(Wire):
    """Jobs of one experiment on one of its training services."""

    experiment: str = Field(description="Id of the experiment, which may be deleted.")
    service: str = Field(description="The training service, as the experiment calls it.")
    platform: str = Field(description="What it is.")
    jobs: int | None = Field(description="How many jobs were left there; null: not known.")
    trouble: str = Field(description="Why they could not be ended, one sentence; empty: they are.")


class CleanedList(Wire):
    cleaned: list[Cleaned] = Field(description="Everything that was left, oldest first.")


class ServicePlan(Wire):
    """Where the first trials of an experiment would go on one of its training services, if it had that alone."""

    service: str = Field(description="The training service, as the experiment calls it.")
    platform: str = Field(description="What it is.")
    trials: int = Field(description="How many it was asked about: so many may run there at a time.")
    places: list[str] | None = Field(
        description="Of each trial that would start now, where; null: the service decides that itself."
    )
    why_not: dict[str, str] = Field(description="Machine → why no trial more would go there now.")
    trouble: str = Field(description="Why the service could not be asked; empty: it could.")


class ServicePlanList(Wire):
    services: list[ServicePlan] = Field(description="In the order of the config.")
