"""What is needed to repeat an experiment, as it was recorded when the experiment was made."""

from __future__ import annotations

from fastapi import APIRouter

from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.provenance import Provenance
from nni_manager.domain.errors import NotFound
from nni_manager.store.experiment import experiments

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.get(
    "/{id}/provenance",
    operation_id="getProvenance",
    summary="What is needed to repeat it: code, packages, machine",
    responses=documented(404, 503),
)
async def show(id: ExperimentId, context: Context) -> Provenance:
    """Commit and uncommitted changes of the code directory, the caller's Python with its packages, seed and machine. Of
    a new experiment: answers once it is recorded. 404 also where nothing was recorded, as of what NNI made."""
    await context.service.provenance.settled(id)
    record = await context.service.read(id, experiments.provenance)
    if record is None:
        raise NotFound(f"nothing was recorded of the code and the machine of experiment {id}")
    return Provenance.model_validate(record)
