"""Disks: what an experiment takes, and what is left."""

from __future__ import annotations

from fastapi import APIRouter

from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.disk import Disk, DiskUse
from nni_manager.domain.errors import StoreUnavailable

router = APIRouter(prefix="/api/v1")


@router.get(
    "/experiments/{id}/disk",
    operation_id="getDiskUse",
    summary="What it takes on disk",
    tags=["experiments"],
    responses=documented(404, 503),
)
async def use(id: ExperimentId, context: Context) -> DiskUse:
    """Bytes by part: database, trials, checkpoints, code. Counted when asked for, and up to a minute old."""
    entry = await context.service.entry(id)
    found = await context.service.disk.use_of(entry.folder)
    return DiskUse(
        total=found.total,
        database=found.database,
        trials=found.trials,
        checkpoints=found.checkpoints,
        code=found.code,
        logs=found.logs,
        other=found.other,
        files=found.files,
    )


@router.get(
    "/disk", operation_id="getDisk", summary="The data directory's disk", tags=["daemon"], responses=documented(503)
)
async def disk(context: Context) -> Disk:
    """How much is free, and the warning of a disk that is nearly full."""
    try:
        found = await context.service.disk.room()
    except OSError as error:
        raise StoreUnavailable(f"the disk of {context.data_directory} cannot be asked: {error.strerror}") from error
    return Disk(folder=str(found.folder), free=found.free, total=found.total, least=found.least, warning=found.sentence)
