"""Training services as such, whoever uses them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from nni_manager.api.context import Context
from nni_manager.api.errors import documented
from nni_manager.api.schemas.platforms import Clean, Cleaned, CleanedList

router = APIRouter(prefix="/api/v1/platforms", tags=["platforms"])


@router.post(
    "/clean",
    operation_id="cleanPlatforms",
    summary="End what closed experiments left",
    responses=documented(400, 413, 503),
)
async def clean(context: Context, body: Annotated[Clean | None, Body()] = None) -> CleanedList:
    """Jobs that could not be ended with their experiment. What cannot be ended now stays noted."""
    ended = await context.service.clean(frozenset(body.platforms if body is not None else ()))
    return CleanedList(
        cleaned=[
            Cleaned(
                experiment=one.left.experiment_id, service=one.left.service, platform=one.left.platform,
                jobs=len(one.left.job_names) or None, trouble=one.trouble,
            )
            for one in ended
        ]
    )  # fmt: skip
