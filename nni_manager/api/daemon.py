"""The daemon behind the API: what it is, its end, and health checks for probes."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Body

from nni_manager.api.context import Context
from nni_manager.api.errors import documented
from nni_manager.api.schemas.daemon import Daemon, Health, Listener, StopDaemon, Stopping

router = APIRouter(prefix="/api/v1/daemon", tags=["daemon"])


@router.get("", operation_id="getDaemon", summary="Who answers here", responses=documented(503))
async def show(context: Context) -> Daemon:
    """The daemon: version, process, listeners."""
    return Daemon(
        version=context.version,
        pid=os.getpid(),
        data_directory=str(context.data_directory),
        started_ms=context.started_ms,
        listeners=[Listener.model_validate(listener) for listener in context.listeners()],
        experiments=len(await context.service.entries()),
        ends_by_itself=context.ends_by_itself,
    )


@router.post(
    "/stop", operation_id="stopDaemon", summary="End the daemon", status_code=202, responses=documented(400, 413)
)
async def stop(context: Context, body: Annotated[StopDaemon | None, Body()] = None) -> Stopping:
    """Answers at once. Running jobs go on, and the next daemon takes them up, unless `experiments` is true."""
    context.stop_daemon(body is not None and body.experiments)
    return Stopping(status="stopping")


health_router = APIRouter(tags=["daemon"])


@health_router.get("/healthz", operation_id="getHealth", summary="Is the process alive?")
async def health() -> Health:
    """Answers as long as the daemon lives, whatever else may be wrong. Asks for no token."""
    return Health(status="ok")


@health_router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Can the daemon be used?",
    response_model=Health,
    responses=documented(503),
)
async def ready(context: Context) -> Health:
    """200 when the list of experiments can be read; no listener is open before they are. Asks for no token."""
    await context.service.entries()
    return Health(status="ok")
