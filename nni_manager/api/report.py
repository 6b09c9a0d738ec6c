"""The report of an experiment, for colleagues without a manager."""

from __future__ import annotations

from fastapi import APIRouter, Response

from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])

#: Kept as a file: opened as a page of this manager it would run in its name, so that even then nothing of it runs.
_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
}


@router.get(
    "/{id}/report",
    operation_id="getReport",
    summary="A report: one HTML file that opens without a network",
    response_class=Response,
    responses=documented(404, 503) | {200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def report(id: ExperimentId, context: Context) -> Response:
    """Charts, config (secrets masked), best trials, failures, and what is needed to repeat it. About 2.3 MB; of many
    trials charts draw a sample."""
    disposition = {"Content-Disposition": f'attachment; filename="{id}-report.html"'}
    return Response(await context.report(id), media_type="text/html", headers={**_HEADERS, **disposition})
