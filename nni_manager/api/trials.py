"""Trials of one experiment and their results. SQLite makes the JSON of lists: rows do not become Python objects."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from nni_manager.api.context import Context, ExperimentId, TrialId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.trials import AddedTrial, MetricList, NewTrial, TrialList, TrialWithAttempts
from nni_manager.domain.metrics import MetricType
from nni_manager.domain.trial import TrialStatus
from nni_manager.store.experiment import answers
from nni_manager.store.experiment.answers import Page

router = APIRouter(prefix="/api/v1/experiments/{id}/trials", tags=["trials"])


class TrialOrder(StrEnum):
    """The orders that `answers.TRIAL_ORDERS` knows."""

    SEQUENCE = "sequence"
    SEQUENCE_DOWN = "-sequence"
    FINAL = "final"
    FINAL_DOWN = "-final"


@router.get(
    "",
    operation_id="listTrials",
    summary="Trials of an experiment",
    response_model=TrialList,
    responses=documented(400, 404, 503),
)
async def list_all(
    id: ExperimentId,
    context: Context,
    status: Annotated[TrialStatus | None, Query(description="Only those with this status.")] = None,
    order: Annotated[
        TrialOrder,
        Query(description="By sequence id, or by final result; a minus turns it round. No result comes last."),
    ] = TrialOrder.SEQUENCE,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many at most.")] = 100,
    offset: Annotated[int, Query(ge=0, le=2**53, description="How many of them to leave out first.")] = 0,
) -> Response:
    """A page of them."""
    page = Page(limit=limit, offset=offset)
    return _json(await context.service.read(id, lambda c: answers.trials(c, status=status, order=order, page=page)))


@router.post(
    "",
    operation_id="addTrial",
    summary="Add a trial with parameters of your own",
    status_code=201,
    responses=documented(400, 404, 409, 413, 503),
)
async def add(id: ExperimentId, body: Annotated[NewTrial, Body()], context: Context) -> AddedTrial:
    """Adds a trial with these parameters. It waits for a free slot, and counts towards `maxTrialNumber`."""
    return AddedTrial.model_validate(await context.service.add_trial(id, body.parameters, body.repeats))


@router.get(
    "/{trialId}",
    operation_id="getTrial",
    summary="One trial with its attempts",
    response_model=TrialWithAttempts,
    responses=documented(404, 503),
)
async def show(id: ExperimentId, trial_id: TrialId, context: Context) -> Response:
    """Attempts carry the evidence: exit code, signal, last lines of standard error."""
    return _json(await context.service.read(id, lambda c: answers.trial(c, trial_id)))


@router.post(
    "/{trialId}/kill",
    operation_id="killTrial",
    summary="End a trial",
    status_code=202,
    response_class=Response,
    responses=documented(404, 409, 503),
)
async def kill(id: ExperimentId, trial_id: TrialId, context: Context) -> Response:
    """Answers when the wish is stored; the trial is USER_CANCELED once it has ended. Quiet for one that has."""
    await context.service.kill_trial(id, trial_id)
    return Response(status_code=202)


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


metrics_router = APIRouter(prefix="/api/v1/experiments/{id}/metrics", tags=["results"])

_MetricNumber = Annotated[int, Query(ge=0, le=2**53)]


@metrics_router.get(
    "",
    operation_id="listMetrics",
    summary="Results in the order they were stored",
    response_model=MetricList,
    responses=documented(400, 404, 503),
)
async def list_metrics(
    id: ExperimentId,
    context: Context,
    trial: Annotated[str | None, Query(description="Only those of this trial.")] = None,
    type: Annotated[MetricType | None, Query(description="Only intermediate (PERIODICAL) or FINAL ones.")] = None,
    after: Annotated[_MetricNumber, Query(description="Only those with a greater id.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many at most.")] = 1000,
    offset: Annotated[_MetricNumber, Query(description="How many of them to leave out first.")] = 0,
) -> Response:
    """All attempts are in it. To follow an experiment, ask again with `after` set to the last id."""
    page = Page(limit=limit, offset=offset)
    text = await context.service.read(
        id, lambda c: answers.metrics(c, trial_id=trial, type=type, after=after, page=page)
    )
    return Response(text, media_type="application/json")
