"""Health checks, for probes: is it alive, can it be used."""

from __future__ import annotations

from fastapi import APIRouter

from nni_manager.api.context import Context
from nni_manager.api.errors import documented
from nni_manager.api.schemas.daemon import Health

router = APIRouter(tags=["daemon"])


@router.get("/healthz", operation_id="getHealth", summary="Is the process alive?")
async def health() -> Health:
    """Answers as long as the daemon lives, whatever else may be wrong. Asks for no token."""
    return Health(status="ok")


@router.get(
    "/readyz", operation_id="getReadiness", summary="Can the daemon be used?", response_model=Health,
    responses=documented(503),
)  # fmt: skip
async def ready(context: Context) -> Health:
    """200 when the list of experiments can be read; no listener is open before they are. Asks for no token."""
    await context.service.entries()
    return Health(status="ok")
