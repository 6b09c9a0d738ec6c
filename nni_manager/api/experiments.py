"""Experiments: create, list, describe, change, stop, resume, delete; disk use, provenance and report."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from nni_manager.api import code, experiment_description, submission
from nni_manager.api import experiment_description as description
from nni_manager.api.context import ApiContext, Context, ExperimentId
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.daemon import DiskUse, Wire
from nni_manager.api.schemas.experiments import (
    Created,
    Experiment,
    ExperimentChange,
    ExperimentList,
    ExperimentSummary,
    ExperimentWarning,
    ExportedResult,
    ImportedResult,
    NewSecrets,
    Resume,
    StoppedExperiments,
    View,
)
from nni_manager.api.schemas.provenance import Provenance
from nni_manager.config import admission
from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments.submission import Reopening
from nni_manager.store.experiment import answers, experiments
from nni_manager.store.index import best_results
from nni_manager.store.index.index import Entry
from nni_manager.store.index.labels import Labels

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"], dependencies=KNOWN_QUERY)

#: Fields of an experiment in addition to its config.
_OF_LABELS: tuple[str, ...] = ("notes", "tags", "archived")
#: Fields of a request that are valid only together with trainingService.
_OF_SERVICES = frozenset({"secrets", "directory", "now"})


@router.post(
    "",
    operation_id="createExperiment",
    summary="Create and start an experiment",
    status_code=201,
    responses=documented(400, 409, 413, 503),
    openapi_extra={"requestBody": submission.REQUEST_BODY},
)
async def create(request: Request, response: Response, context: Context) -> Created:
    """Answers when the experiment is stored and active; `Location` names it. A refused request leaves no trace."""
    new = await submission.read(request, context)
    id_ = await context.commands.create(new)
    response.headers["Location"] = f"/api/v1/experiments/{id_}"
    of_file = admission.warnings(new.spec, new.class_direction)
    warnings = (*(warning.told for warning in of_file), *context.commands.live(id_).warnings)
    return Created(id=id_, warnings=[ExperimentWarning.model_validate(one) for one in warnings])


class ExperimentOrder(StrEnum):
    OLDEST_FIRST = "created"
    NEWEST_FIRST = "-created"


@router.get(
    "",
    operation_id="listExperiments",
    summary="List experiments",
    response_model=ExperimentList,
    responses=documented(400, 503),
)
async def list_all(
    context: Context,
    status: Annotated[
        list[ExperimentStatus] | None, Query(description="Only those with one of these statuses.")
    ] = None,
    hold: Annotated[bool | None, Query(description="Only those on hold, or only others.")] = None,
    name: Annotated[
        str | None, Query(description="Only those whose name or id contains this text, ignoring case.")
    ] = None,
    platform: Annotated[str | None, Query(description="Only those with trials there.", examples=["local"])] = None,
    tag: Annotated[str | None, Query(description="Only those with this tag.", examples=["paper"])] = None,
    archived: Annotated[bool | None, Query(description="Only archived ones, or only others.")] = None,
    order: Annotated[
        ExperimentOrder, Query(description="Order by age; a minus: newest first.")
    ] = ExperimentOrder.OLDEST_FIRST,
    limit: Annotated[int | None, Query(ge=1, le=10_000, description="Maximum number; default: all.")] = None,
    offset: Annotated[int, Query(ge=0, le=2**53, description="Number to skip at the beginning.")] = 0,
) -> Response:
    """The experiments of this daemon, including stopped ones."""
    entries = [entry for entry in await context.commands.entries() if _is_called(entry, name, platform)]
    entries = [one for one in entries if tag in (None, *one.labels.tags) and archived in (None, one.labels.is_archived)]
    found = await asyncio.gather(*(description.summarize(context, entry) for entry in entries))
    matching = [one for one in found if (not status or one.status in status) and hold in (None, one.hold is not None)]
    if order is ExperimentOrder.NEWEST_FIRST:
        matching.reverse()
    page = matching[offset : None if limit is None else offset + limit]
    return _described(ExperimentList(total=len(matching), experiments=page))


def _is_called(entry: Entry, name: str | None, platform: str | None) -> bool:
    if platform is not None and platform not in entry.platform.replace(",", " ").split():
        return False
    return name is None or name.lower() in f"{entry.id}\n{entry.name or ''}".lower()


@router.post("/stop", operation_id="stopAllExperiments", summary="Stop all experiments", responses=documented(503))
async def stop_all(context: Context) -> StoppedExperiments:
    """Stops their trials; answers when all are closed."""
    return StoppedExperiments(stopped=list(await context.commands.stop_all()))


@router.get(
    "/{id}",
    operation_id="getExperiment",
    summary="Get an experiment",
    response_model=Experiment,
    responses=documented(404, 503),
)
async def show(id: ExperimentId, context: Context) -> Response:
    """An experiment: status, progress, best trial, config."""
    return _described(await description.describe(context, id))


@router.patch(
    "/{id}",
    operation_id="changeExperiment",
    summary="Change limits, name, search space, training services, notes or tags",
    response_model=Experiment,
    responses=documented(400, 404, 409, 413, 503),
)
async def change(id: ExperimentId, body: Annotated[ExperimentChange, Body()], context: Context) -> Response:
    """Changes an open experiment. A request with only notes, tags, `archived` or name also changes a stopped one. A
    higher limit continues an experiment that is DONE."""
    fields = body.model_dump(by_alias=True, exclude_unset=True, exclude={"training_service", *_OF_SERVICES})
    labels = {name: fields.pop(name) for name in _OF_LABELS if name in fields}
    services = _services(body)
    Labels().changed(labels)  # raises before anything is changed
    if fields or services is not None or not labels:
        await context.commands.change(id, fields, services)
    if labels:
        await context.commands.label(id, labels)
    return _described(await description.describe(context, id))


@router.post(
    "/{id}/stop",
    operation_id="stopExperiment",
    summary="Stop an experiment",
    response_model=ExperimentSummary,
    responses=documented(404, 503),
)
async def stop(id: ExperimentId, context: Context) -> Response:
    """Stops its trials; answers when it is closed. No effect on a stopped one."""
    await context.commands.stop(id)
    return await _summarized(id, context)


@router.post(
    "/{id}/resume",
    operation_id="resumeExperiment",
    summary="Continue an experiment",
    response_model=ExperimentSummary,
    responses=documented(400, 404, 409, 413, 503),
)
async def resume(id: ExperimentId, context: Context, body: Annotated[Resume | None, Body()] = None) -> Response:
    """Opens a stopped experiment, or clears the hold or error of an open one. Unfinished trials run again."""
    await context.commands.resume(id, _reopening(body or Resume()))
    return await _summarized(id, context)


@router.put(
    "/{id}/credentials",
    operation_id="renewCredentials",
    summary="Replace secrets",
    status_code=204,
    responses=documented(400, 404, 409, 413, 503),
)
async def renew_credentials(id: ExperimentId, body: Annotated[NewSecrets, Body()], context: Context) -> None:
    """Effective from the next call of the platform. Clears a hold for refused credentials. Works on stopped
    experiments, too.

    If the private file in its folder is missing, it is written again, with `environment`."""
    environment = context.environment if body.environment is None else submission.checked_environment(body.environment)
    await context.commands.renew_secrets(id, body.secrets, environment)


@router.post(
    "/view",
    operation_id="viewExperiment",
    summary="Open a stopped experiment for reading only",
    response_model=ExperimentSummary,
    responses=documented(400, 404, 409, 503),
)
async def view(body: Annotated[View, Body()], context: Context) -> Response:
    """Opens an experiment for reading until `stop` or `resume`. Its folder may have been copied here."""
    await context.commands.view(body.id, _reopening(body))
    return await _summarized(body.id, context)


@router.delete(
    "/{id}",
    operation_id="deleteExperiment",
    summary="Delete a stopped experiment",
    status_code=204,
    responses=documented(404, 409, 503),
)
async def delete(id: ExperimentId, context: Context) -> None:
    """Removes its folder: database, logs, files of its trials."""
    await context.commands.delete(id, also=partial(code.sweep, context.data_directory))


@router.post(
    "/{id}/import",
    operation_id="importResults",
    summary="Import results for the tuner",
    status_code=204,
    responses=documented(400, 404, 409, 413, 503),
)
async def import_results(id: ExperimentId, body: Annotated[list[ImportedResult], Body()], context: Context) -> None:
    """Passes results of other experiments to the tuner, without creating trials."""
    await context.commands.import_data(id, [entry.model_dump(by_alias=True) for entry in body])


@router.get(
    "/{id}/export",
    operation_id="exportResults",
    summary="Export parameters and results of all successful trials",
    response_model=list[ExportedResult],
    responses=documented(400, 404, 503),
)
async def export_results(
    id: ExperimentId,
    context: Context,
    intermediate: Annotated[bool, Query(description="Include intermediate results.")] = False,
) -> Response:
    """Parameters with final results, ordered by trial number, in the format of `import`."""
    text = await context.commands.read(
        id, lambda c: answers.exported(c, with_intermediates=intermediate, pareto_set=best_results.pareto_members(c))
    )
    return Response(text, media_type="application/json")


@router.get(
    "/{id}/disk",
    operation_id="getDiskUse",
    summary="Disk use of an experiment",
    responses=documented(404, 503),
)
async def show_disk_use(id: ExperimentId, context: Context) -> DiskUse:
    """Bytes by part: database, trials, checkpoints, code. Counted on request; may be up to a minute old."""
    entry = await context.commands.entry(id)
    return DiskUse.model_validate(await context.commands.disk.use_of(entry.folder))


@router.get(
    "/{id}/provenance",
    operation_id="getProvenance",
    summary="Provenance of an experiment: code, packages, machine",
    responses=documented(404, 503),
)
async def show_provenance(id: ExperimentId, context: Context) -> Provenance:
    """Commit and uncommitted changes of the code directory, the caller's Python with its packages, seed and machine.
    For a new experiment, waits until the record is complete. 404 if nothing was recorded, as for NNI's experiments."""
    await context.commands.provenance.settled(id)
    record = await context.commands.read(id, experiments.provenance)
    if record is None:
        raise NotFound(f"experiment {id} has no record of its code and machine")
    return Provenance.model_validate(record)


#: The report is a download. If a browser opens it at this address, the policy prevents its scripts from running.
_REPORT_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
}


@router.get(
    "/{id}/report",
    operation_id="getReport",
    summary="Report of an experiment: one HTML file that opens without a network",
    response_class=Response,
    responses=documented(404, 503) | {200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def report(id: ExperimentId, context: Context) -> Response:
    """Charts, config (secrets masked), best trials, failures and provenance. About 2.3 MB; with many trials, charts
    draw a sample."""
    disposition = {"Content-Disposition": f'attachment; filename="{id}-report.html"'}
    return Response(await context.report(id), media_type="text/html", headers={**_REPORT_HEADERS, **disposition})


def _services(body: ExperimentChange) -> ServiceChange | None:
    """The change of training services, or None. Raises InvalidInput for fields that require it."""
    if "training_service" in body.model_fields_set:
        directory = {"directory": body.directory} if body.directory else {}
        return ServiceChange(sections=body.training_service, secrets=body.secrets, now=body.now, **directory)
    given = [
        name for name in sorted(_OF_SERVICES) if getattr(body, name)
    ]  # truthy ones only: generated clients send defaults
    if given:
        raise InvalidInput(f"{given[0]}: requires trainingService, which is missing; add it")
    return None


def _reopening(body: Resume | View) -> Reopening:
    """Raises InvalidInput."""
    debug, secrets = (body.debug, body.secrets) if isinstance(body, Resume) else (False, {})
    directory = experiment_description.working_directory(body.working_directory)
    return Reopening(
        endpoint=experiment_description.endpoint_wish(body.endpoint), directory=directory, debug=debug, secrets=secrets
    )


async def _summarized(id_: str, context: ApiContext) -> Response:
    return _described(await description.summarize(context, await context.commands.entry(id_)))


def _described(answer: Wire) -> Response:
    """The answer, serialised here because FastAPI fails at lone surrogates."""
    return Response(answer.json_text(), media_type="application/json")
