"""Routes about training services: state, plan, clean-up, leftovers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request

from nni_manager.api import submission
from nni_manager.api.context import ApiContext, Context
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.platforms import (
    Clean,
    Cleaned,
    CleanedList,
    Gpu,
    InLine,
    JobOnGpu,
    LeftObject,
    LeftOnService,
    LeftOnServices,
    Machine,
    Platforms,
    ProcessOnGpu,
    ServicePlan,
    ServicePlanList,
    ServiceUse,
    SharedService,
    TrainingService,
)
from nni_manager.platform_kit import contract
from nni_manager.scheduler.experiments import service_map
from nni_manager.scheduler.experiments.service_map import MachineState, ServiceState

router = APIRouter(prefix="/api/v1/platforms", tags=["platforms"], dependencies=KNOWN_QUERY)


@router.get(
    "",
    operation_id="showPlatforms",
    summary="List training services of open experiments, with machines and GPUs",
    responses=documented(503),
)
async def show(context: Context) -> Platforms:
    """State of services, use of GPUs, and experiments that wait for GPUs. From memory, without calls to services."""
    return await describe(context)


@router.post(
    "/plan",
    operation_id="planExperiment",
    summary="Plan where an experiment's first trials would run",
    responses=documented(400, 409, 413, 503),
    openapi_extra={"requestBody": submission.REQUEST_BODY},
)
async def plan(request: Request, context: Context) -> ServicePlanList:
    """The body is that of a new experiment. Nothing is created, started or reserved."""
    plans = await context.commands.plan(await submission.read(request, context))
    return ServicePlanList(
        services=[
            ServicePlan(
                service=one.service,
                platform=one.platform,
                trials=one.trials,
                trouble=one.trouble,
                places=None if one.plan is None else list(one.plan.places),
                why_not={} if one.plan is None else dict(one.plan.why_not),
            )
            for one in plans
        ]
    )


@router.post(
    "/clean",
    operation_id="cleanPlatforms",
    summary="End leftover jobs of closed experiments",
    responses=documented(400, 413, 503),
)
async def clean(context: Context, body: Annotated[Clean | None, Body()] = None) -> CleanedList:
    """Ends jobs that could not be ended with their experiment. Jobs that cannot be ended now stay recorded."""
    ended = await context.commands.clean(frozenset(body.platforms if body is not None else ()))
    return CleanedList(
        cleaned=[
            Cleaned(
                experiment=left.experiment_id,
                service=left.service,
                platform=left.platform,
                jobs=len(left.job_names) or None if left.may_run is None else left.may_run,
                trouble=trouble,
            )
            for left, trouble in ended
        ]
    )


@router.post(
    "/left",
    operation_id="findLeft",
    summary="List or remove leftover objects on a config's services, including those of other daemons",
    responses=documented(400, 409, 413, 503),
    openapi_extra={"requestBody": submission.REQUEST_BODY},
)
async def left(
    request: Request,
    context: Context,
    remove: Annotated[
        list[str] | None, Query(description="Ids of experiments: removes and returns their leftover objects.")
    ] = None,
) -> LeftOnServices:
    """The body is that of a new experiment, which is not created. Objects of open experiments of this daemon are
    omitted. Another manager may still use its objects: let a user choose the experiments to remove."""
    found = await context.commands.find_left(await submission.read(request, context), remove)
    return LeftOnServices(
        services=[
            LeftOnService(
                service=one.service,
                platform=one.platform,
                trouble=one.trouble,
                objects=[_left_object(each, one.identity) for each in one.objects],
            )
            for one in found
        ]
    )


def _left_object(found: contract.LeftObject, own: str) -> LeftObject:
    whose: Literal["this", "another", "unknown"] = (
        "this" if found.manager == own else "another" if found.manager else "unknown"
    )
    return LeftObject(
        experiment=found.experiment_id, manager=whose, what=found.what, created_ms=found.created_ms, stays=found.stays
    )


async def describe(context: ApiContext) -> Platforms:
    """The training services, machines and GPUs. Raises StoreError."""
    service = context.commands
    found = await service_map.read(service.open_experiments, service.connections)
    return Platforms(
        services=[_service(one) for one in found],
        line=[
            InLine(experiment=one.experiment_id, service=one.service, machines=list(one.machines), places=one.places)
            for one in service_map.line(service.connections)
        ],
    )


def _service(state: ServiceState) -> SharedService:
    return SharedService(
        platform=state.platform,
        address=state.address,
        uses=[
            ServiceUse(
                experiment=use.experiment_id,
                name=use.experiment_name,
                service=TrainingService.model_validate(use.service),
            )
            for use in state.uses
        ],
        machines=[_machine(machine) for machine in state.machines],
    )


def _machine(state: MachineState) -> Machine:
    report = state.report
    return Machine(
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


def _gpu(gpu: service_map.Gpu) -> Gpu:
    return Gpu(
        index=gpu.card.index,
        name=gpu.card.name,
        memory_bytes=gpu.card.memory_bytes,
        error=gpu.card.error,
        trials=[
            JobOnGpu(experiment=job.experiment_id, trial=job.trial_id, memory_bytes=job.memory_bytes)
            for job in gpu.jobs
        ],
        processes=[ProcessOnGpu.model_validate(one) for one in gpu.others],
    )
