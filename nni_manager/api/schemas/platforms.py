"""Training services, their machines and GPUs, plans, and leftover objects."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.domain.service import ServiceStatus


class TrainingService(Wire):
    """A training service of an experiment."""

    name: str = Field(description="Its unique name in the experiment.", examples=["openpai-2"])
    platform: str = Field(description="Its platform.", examples=["openpai"])
    status: ServiceStatus | None = Field(
        description="`connecting`; `up`; `away` (unreachable or takes no jobs; retried); `on hold` (needs "
        "a user's action; `resume` tries again); `removed` (starts no new trials); null: the "
        "experiment is closed."
    )
    since_ms: int | None = Field(description="Since when, milliseconds since the epoch; null: unknown.")
    sentence: str = Field(description="Its problem or that of its machines, or why it has no free slots; empty: none.")
    room: int | None = Field(description="Number of free slots for jobs; null: unlimited, or not known.")
    limit: int | None = Field(description="Maximum number of trials at a time; null: as for the experiment.")
    open_attempts: int = Field(description="Number of its attempts that have not ended.")


class JobOnGpu(Wire):
    """A trial of this manager that uses a GPU."""

    experiment: str = Field(description="Id of the experiment.")
    trial: str = Field(description="Id of the trial.")
    memory_bytes: int = Field(description="Bytes of the GPU's memory that it uses; 0: none yet, or unknown.")


class ProcessOnGpu(Wire):
    """A process on a GPU that does not belong to a trial of this manager."""

    pid: int = Field(description="Its id on the machine.")
    user: str = Field(description="Its user; empty: unknown.")
    memory_bytes: int | None = Field(description="Bytes of the GPU's memory that it uses; null: unknown.")


class Gpu(Wire):
    """A GPU. It is free unless another field says otherwise."""

    index: int = Field(description="Its number on the machine, in bus order.")
    name: str = Field(description="Model name from the driver.")
    memory_bytes: int | None = Field(description="Bytes of its memory; null: unknown.")
    error: str = Field(description="Why it is unusable; empty: usable.")
    trials: list[JobOnGpu] = Field(description="Trials of this manager that use it.")
    processes: list[ProcessOnGpu] = Field(description="Other processes that use it.")


class Machine(Wire):
    """A machine of a training service."""

    name: str = Field(description="Its name.", examples=["hostA"])
    key: str = Field(description="Its unique key.", examples=["user@hostA:22"])
    why: str = Field(description="Why it takes no trials, one sentence; empty: it does.")
    drained: bool = Field(description="Whether it is drained: it starts no new trials.")
    jobs: int | None = Field(description="Trials of this manager that run there; null: unknown.")
    processors: int | None = Field(description="Its processors; null: unknown.")
    load: float | None = Field(description="Load average of the last minute; null: unknown.")
    gpus: list[Gpu] = Field(description="Its GPUs; empty: none, or no trial uses GPUs.")
    gpu_trouble: str = Field(description="Why its GPUs cannot be read; empty: they can be.")


class ServiceUse(Wire):
    """An experiment that uses a training service."""

    experiment: str = Field(description="Id of the experiment.")
    name: str = Field(description="Its name, or empty.")
    service: TrainingService = Field(description="The state of the service for this experiment.")


class SharedService(Wire):
    """A training service, for all open experiments that use it."""

    platform: str = Field(description="Its platform.", examples=["remote"])
    address: str = Field(description="Its address; empty: see its machines.")
    uses: list[ServiceUse] = Field(description="The experiments that use it.")
    machines: list[Machine] = Field(description="Its machines, as far as they are known.")


class InLine(Wire):
    """An experiment that waits for GPUs of machines."""

    experiment: str = Field(description="Id of the experiment.")
    service: str = Field(description="Its training service.")
    machines: list[str] = Field(description="Machines with suitable GPUs.")
    places: int = Field(description="Number of GPUs of each of its trials.")


class Platforms(Wire):
    services: list[SharedService] = Field(description="In the order in which their experiments were opened.")
    line: list[InLine] = Field(description="Queue of experiments that wait for GPUs, the next one first.")


class Clean(Sent):
    """A request to end leftover jobs of closed experiments."""

    platforms: list[str] = Field(default_factory=list, description="Platforms; empty: all.")


class Cleaned(Wire):
    """Leftover jobs of an experiment on a training service."""

    experiment: str = Field(description="Id of the experiment, which may be deleted.")
    service: str = Field(description="The training service, by its name in the experiment.")
    platform: str = Field(description="Its platform.")
    jobs: int | None = Field(description="Number of jobs that may have run there; null: unknown.")
    trouble: str = Field(description="Why they could not be ended, one sentence; empty: they ended.")


class CleanedList(Wire):
    cleaned: list[Cleaned] = Field(description="All leftover jobs, oldest first.")


class LeftObject(Wire):
    """A leftover object of an experiment that is not open here, on a training service."""

    experiment: str = Field(description="Id of the experiment, from the object.")
    manager: Literal["this", "another", "unknown"] = Field(
        description="The data directory of the daemon that created it; unknown: an earlier version created it."
    )
    what: str = Field(description="Its kind and name.")
    created_ms: int | None = Field(description="Creation time, milliseconds since the epoch; null: unknown.")
    stays: str = Field(description="Why it cannot be removed, one sentence; empty: it can be.")


class LeftOnService(Wire):
    """Leftover objects on a training service."""

    service: str = Field(description="The training service, by its name in the config.")
    platform: str = Field(description="Its platform.")
    objects: list[LeftObject] = Field(description="Objects that were found or removed.")
    trouble: str = Field(description="Why the search or removal is incomplete, one sentence; empty: it is complete.")


class LeftOnServices(Wire):
    services: list[LeftOnService] = Field(description="Services that support this query, in the order of the config.")


class ServicePlan(Wire):
    """The plan of a training service: where first trials would run if the experiment used only this service."""

    service: str = Field(description="The training service, by its name in the experiment.")
    platform: str = Field(description="Its platform.")
    trials: int = Field(description="Number of trials in the plan: the maximum at a time.")
    places: list[str] | None = Field(
        description="Places of the trials that would start now; null: the service decides."
    )
    why_not: dict[str, str] = Field(description="Machine → why no more trials would start there now.")
    trouble: str = Field(description="Why the service could not be reached; empty: it answered.")


class ServicePlanList(Wire):
    services: list[ServicePlan] = Field(description="In the order of the config.")
