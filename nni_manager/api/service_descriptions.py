"""The API's description of training services, their machines and GPUs."""

from __future__ import annotations

from nni_manager.api import experiment_description
from nni_manager.api.context import ApiContext
from nni_manager.api.schemas import platforms as schema
from nni_manager.scheduler.experiments import service_map
from nni_manager.scheduler.experiments.service_map import Gpu, MachineState, ServiceState


async def describe(context: ApiContext) -> schema.Platforms:
    """Raises StoreError."""
    service = context.service
    found = await service_map.read(service.open_experiments, service.connections)
    return schema.Platforms(
        services=[_service(one) for one in found],
        line=[
            schema.InLine(
                experiment=one.experiment_id, service=one.service, machines=list(one.machines), places=one.places
            )
            for one in service_map.line(service.connections)
        ],
    )


def _service(state: ServiceState) -> schema.SharedService:
    return schema.SharedService(
        platform=state.platform,
        address=state.address,
        uses=[
            schema.ServiceUse(
                experiment=use.experiment_id,
                name=use.experiment_name,
                service=experiment_description.describe_service(use.service),
            )
            for use in state.uses
        ],
        machines=[_machine(machine) for machine in state.machines],
    )


def _machine(state: MachineState) -> schema.Machine:
    report = state.report
    return schema.Machine(
        name=report.name,
        key=report.key,
        why=report.why,
        drained=report.is_drained,
        jobs=report.jobs,
        processors=report.processors,
        load=report.load,
        gpus=[_gpu(gpu) for gpu in state.gpus],
        gpu_trouble=state.gpu_trouble,
    )


def _gpu(gpu: Gpu) -> schema.Gpu:
    return schema.Gpu(
        index=gpu.card.index,
        name=gpu.card.name,
        memory_bytes=gpu.card.memory_bytes,
        error=gpu.card.error,
        trials=[
            schema.JobOnGpu(experiment=job.experiment_id, trial=job.trial_id, memory_bytes=job.memory_bytes)
            for job in gpu.jobs
        ],
        processes=[
            schema.ProcessOnGpu(pid=one.pid, user=one.user, memory_bytes=one.memory_bytes) for one in gpu.others
        ],
    )
