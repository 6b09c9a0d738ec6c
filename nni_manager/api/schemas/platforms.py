"""Training services, their machines and GPUs; where an experiment would run; what was left on them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.domain.service import ServiceStatus


class TrainingService(Wire):
    """One of the places where trials of an experiment run."""

    name: str = Field(description="What tells it from the others.", examples=["openpai-2"])
    platform: str = Field(description="What it is.", examples=["openpai"])
    status: ServiceStatus | None = Field(
        description="`connecting`; `up`; `away` (cannot be asked or takes no jobs; ends by itself); `on hold` (a "
        "person must put something right; `resume` tries again); `removed` (takes nothing new); null: the "
        "experiment is closed."
    )
    since_ms: int | None = Field(description="Since when, milliseconds since the epoch; null: not known.")
    sentence: str = Field(
        description="What is wrong with it or some of its machines, or why it has no room; empty when all is well."
    )
    room: int | None = Field(description="Jobs it has room for; null: as many as one likes, or not known.")
    limit: int | None = Field(description="Trials it may have at a time; null: as many as the experiment.")
    open_attempts: int = Field(description="Attempts it was given that have not ended.")


class JobOnGpu(Wire):
    """A trial of this manager that has a GPU."""

    experiment: str = Field(description="Id of the experiment.")
    trial: str = Field(description="Id of the trial.")
    memory_bytes: int = Field(description="Bytes of the GPU's memory that it uses; 0: none yet, or not known.")


class ProcessOnGpu(Wire):
    """A process that computes on a GPU and is no trial of this manager."""

    pid: int = Field(description="Its id on the machine.")
    user: str = Field(description="Its user; empty: not known.")
    memory_bytes: int | None = Field(description="Bytes of the GPU's memory that it uses; null: not known.")


class Gpu(Wire):
    """A GPU: free where nothing of the other fields says otherwise."""

    index: int = Field(description="Its number on the machine, by the bus.")
    name: str = Field(description="The driver's name of its kind.")
    memory_bytes: int | None = Field(description="Bytes of its memory; null: not known.")
    error: str = Field(description="Why it cannot be used; empty: it can.")
    trials: list[JobOnGpu] = Field(description="Trials of this manager that have it.")
    processes: list[ProcessOnGpu] = Field(description="Processes of others on it.")


class Machine(Wire):
    """A machine of a training service."""

    name: str = Field(description="Its name.", examples=["hostA"])
    key: str = Field(description="What tells it from others.", examples=["user@hostA:22"])
    why: str = Field(description="Why it takes no trials, one sentence; empty: it takes them.")
    drained: bool = Field(description="Whether it is meant to start nothing new.")
    jobs: int | None = Field(description="Trials of this manager that run there; null: not known.")
    processors: int | None = Field(description="Its processors; null: not known.")
    load: float | None = Field(description="Processes that want a processor, of the last minute; null: not known.")
    gpus: list[Gpu] = Field(description="Its GPUs; empty: none, or no trial needs them.")
    gpu_trouble: str = Field(description="Why its GPUs cannot be read; empty: they can.")


class ServiceUse(Wire):
    """An experiment that uses a training service."""

    experiment: str = Field(description="Id of the experiment.")
    name: str = Field(description="Its name; empty: it has none.")
    service: TrainingService = Field(description="The service as this experiment sees it.")


class SharedService(Wire):
    """A training service, for all open experiments that use it."""

    platform: str = Field(description="What it is.", examples=["remote"])
    address: str = Field(description="The far side; empty: its machines say where they are.")
    uses: list[ServiceUse] = Field(description="The experiments that use it.")
    machines: list[Machine] = Field(description="Its machines, as far as it tells them.")


class InLine(Wire):
    """An experiment that waits for GPUs of machines."""

    experiment: str = Field(description="Id of the experiment.")
    service: str = Field(description="Its training service.")
    machines: list[str] = Field(description="The machines that could have them.")
    places: int = Field(description="GPUs that each of its trials needs.")


class Platforms(Wire):
    services: list[SharedService] = Field(description="In the order in which their experiments were opened.")
    line: list[InLine] = Field(description="What waits for GPUs, the one whose turn is next first.")


class Clean(Sent):
    """A request to end jobs that earlier experiments left running."""

    platforms: list[str] = Field(default_factory=list, description="Only on these platforms; empty: on all.")


class Cleaned(Wire):
    """Jobs of one experiment on one of its training services."""

    experiment: str = Field(description="Id of the experiment, which may be deleted.")
    service: str = Field(description="The training service, as the experiment calls it.")
    platform: str = Field(description="What it is.")
    jobs: int | None = Field(description="How many jobs may have run there; null: not known.")
    trouble: str = Field(description="Why they could not be ended, one sentence; empty: they are.")


class CleanedList(Wire):
    cleaned: list[Cleaned] = Field(description="Everything that was left, oldest first.")


class LeftObject(Wire):
    """An object at a training service that an experiment made, which is not at work here."""

    experiment: str = Field(description="Id of the experiment, as the object says.")
    manager: Literal["this", "another", "unknown"] = Field(
        description="The daemon that made it, by its data directory; unknown: an earlier version did."
    )
    what: str = Field(description="Its kind and name.")
    created_ms: int | None = Field(description="When it was made, milliseconds since the epoch; null: not known.")
    stays: str = Field(description="Why it cannot be removed, one sentence; empty: it can.")


class LeftOnService(Wire):
    """Objects at one training service."""

    service: str = Field(description="The training service, as the config calls it.")
    platform: str = Field(description="What it is.")
    objects: list[LeftObject] = Field(description="What was found, or was removed.")
    trouble: str = Field(description="Why it could not be asked, or not all be removed, one sentence; empty: it was.")


class LeftOnServices(Wire):
    services: list[LeftOnService] = Field(description="The services that can say, in the order of the config.")


class ServicePlan(Wire):
    """The plan of one training service: where an experiment's first trials would go if it had that service alone."""

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
