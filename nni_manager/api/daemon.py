"""The daemon behind the API: its description, its end, health checks for probes and metrics for Prometheus."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import PlainTextResponse, Response

from nni_manager.api.context import Context
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.daemon import Daemon, Disk, Health, Listener, StopDaemon, Stopping
from nni_manager.domain.errors import StoreUnavailable

router = APIRouter(prefix="/api/v1/daemon", tags=["daemon"], dependencies=KNOWN_QUERY)


@router.get("", operation_id="getDaemon", summary="The daemon and its version", responses=documented(503))
async def show(context: Context) -> Daemon:
    """The daemon: version, process, listeners."""
    return Daemon(
        version=context.version,
        pid=os.getpid(),
        data_directory=str(context.data_directory),
        started_ms=context.started_ms,
        listeners=[Listener.model_validate(listener) for listener in context.listeners()],
        experiments=len(await context.commands.entries()),
        ends_by_itself=context.ends_by_itself,
    )


@router.post(
    "/stop", operation_id="stopDaemon", summary="End the daemon", status_code=202, responses=documented(400, 413)
)
async def stop(context: Context, body: Annotated[StopDaemon | None, Body()] = None) -> Stopping:
    """Answers at once. Jobs keep running, and the next daemon continues them, unless `experiments` is true."""
    context.stop_daemon(body is not None and body.experiments)
    return Stopping(status="stopping")


#: Routes outside the daemon's own path.
root_router = APIRouter(tags=["daemon"], dependencies=KNOWN_QUERY)


@root_router.get("/api/v1/disk", operation_id="getDisk", summary="The data directory's disk", responses=documented(503))
async def disk(context: Context) -> Disk:
    """Free and total space, and a warning if the disk is nearly full."""
    try:
        found = await context.commands.disk.room()
    except OSError as error:
        raise StoreUnavailable(
            f"the disk of {context.data_directory} cannot be read: {error.strerror}; check that it is mounted"
        ) from error
    return Disk(folder=str(found.folder), free=found.free, total=found.total, least=found.least, warning=found.sentence)


_METRICS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Prometheus' text format, version 0.0.4.",
        "content": {"text/plain": {"schema": {"type": "string", "description": "Families of samples."}}},
    }
}


@root_router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=_METRICS,
)
async def metrics(context: Context) -> Response:
    """Cheap enough for a scrape every few seconds. A listener with a token requires it here, too: configure the scrape
    to send `Authorization: Bearer <token>`."""
    from nni_manager.api import metrics  # Prometheus' library, imported at the first scrape

    text = metrics.text(await metrics.families(context))
    return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})


@root_router.get("/healthz", operation_id="getHealth", summary="Liveness of the process")
async def health() -> Health:
    """Answers while the daemon runs. Needs no token."""
    return Health(status="ok")


@root_router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Readiness of the daemon",
    response_model=Health,
    responses=documented(503),
)
async def ready(context: Context) -> Health:
    """200 if the list of experiments is readable. No listener opens before the experiments are open. Needs no token."""
    await context.commands.entries()
    return Health(status="ok")
