"""What closed experiments left on training services."""

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
