"""Training services, their machines and GPUs, as the API shows them."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.daemon import Wire
from nni_manager.api.schemas.experiments import TrainingService


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
