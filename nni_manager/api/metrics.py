"""Results of one experiment, as bytes from SQLite."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.trials import MetricList
from nni_manager.domain.metrics import MetricType
from nni_manager.store import answers
from nni_manager.store.answers import Page

router = APIRouter(prefix="/api/v1/experiments/{id}/metrics", tags=["results"])

_Number = Annotated[int, Query(ge=0, le=2**53)]


@router.get(
    "", operation_id="listMetrics", summary="Results in the order they were stored", response_model=MetricList,
    responses=documented(400, 404, 503),
)  # fmt: skip
async def list_all(
    id: ExperimentId,
    context: Context,
    trial: Annotated[str | None, Query(description="Only those of this trial.")] = None,
    type: Annotated[MetricType | None, Query(description="Only intermediate (PERIODICAL) or FINAL ones.")] = None,
    after: Annotated[_Number, Query(description="Only those with a greater id.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many at most.")] = 1000,
    offset: Annotated[_Number, Query(description="How many of them to leave out first.")] = 0,
) -> Response:
    """All attempts are in it. To follow an experiment, ask again with `after` set to the last id."""
    page = Page(limit=limit, offset=offset)
    text = await context.service.read(
        id, lambda c: answers.metrics(c, trial_id=trial, type=type, after=after, page=page)
    )
    return Response(text, media_type="application/json")
