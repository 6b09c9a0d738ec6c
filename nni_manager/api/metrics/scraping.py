"""The route `/metrics`, for Prometheus and compatible monitors."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from nni_manager.api.context import Context

router = APIRouter(tags=["daemon"])

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Prometheus' text format, version 0.0.4.",
        "content": {"text/plain": {"schema": {"type": "string", "description": "Families of samples."}}},
    }
}


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses=_ANSWER,
)
async def show(context: Context) -> Response:
    """Cheap enough to be asked every few seconds. A listener with a token wants it here, too; whoever scrapes sends it
    as `Authorization: Bearer <token>`."""
    from nni_manager.api.metrics import exposition, prometheus  # Prometheus' library, imported at the first scrape

    text = exposition.text(await prometheus.families(context))
    return Response(text, headers={"Content-Type": exposition.CONTENT_TYPE, "Cache-Control": "no-store"})
