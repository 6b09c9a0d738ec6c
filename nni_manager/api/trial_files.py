"""All files of a trial's attempt, listed and read in byte ranges."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter

from nni_manager.api.context import ApiContext, Context, ExperimentId, TrialId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.trials import TrialFile, TrialFileList
from nni_manager.domain.errors import NotFound
from nni_manager.scheduler.experiments import attempt_logs
from nni_manager.store.experiment import answers

#: Bytes of one answer at most.
_MOST = 4 * 1024 * 1024

router = APIRouter(prefix="/api/v1/experiments/{id}/trials/{trialId}/files", tags=["logs"])

_Attempt = Annotated[int | None, Query(ge=1, le=2**31, description="Which attempt; not given: the latest.")]


@router.get("", operation_id="listTrialFiles", summary="The files of a trial", responses=documented(400, 404, 503))
async def list_files(id: ExperimentId, trial_id: TrialId, context: Context, attempt: _Attempt = None) -> TrialFileList:
    """The files in the attempt's folder, wherever it is, and those in the trial's checkpoint folder on this machine."""
    number = await _number(context, id, trial_id, attempt)
    found = await attempt_logs.files(context.service, id, trial_id, number)
    here = [TrialFile(name=name, place="here") for name in found.here]
    there = [TrialFile(name=name, place="service") for name in found.at_service]
    return TrialFileList(attempt=number, files=sorted([*here, *there], key=lambda file: file.name), why=found.why)


@router.get(
    "/{name:path}",
    operation_id="readTrialFile",
    summary="A stretch of a file of a trial",
    response_class=Response,
    responses={
        200: {
            "description": "The stretch, as it stands in the file; none at its end.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "headers": {
                "X-Offset": {"description": "First byte of the stretch.", "schema": {"type": "integer"}},
                "X-Size": {"description": "Bytes up to the end of the stretch.", "schema": {"type": "integer"}},
            },
        },
        **documented(400, 404, 503),
    },
)
async def read_file(
    id: ExperimentId,
    trial_id: TrialId,
    name: Annotated[str, PathParameter(description="As the list names it.")],
    context: Context,
    offset: Annotated[int, Query(ge=0, le=2**53, description="First byte.")] = 0,
    limit: Annotated[int, Query(ge=0, le=_MOST, description="Bytes at most.")] = _MOST,
    attempt: _Attempt = None,
) -> Response:
    """A file below the attempt's folder; no link is followed."""
    number = await _number(context, id, trial_id, attempt)
    file = await attempt_logs.file(context.service, id, trial_id, number, name)
    data = await file.read(offset, limit)
    headers = {
        "X-Offset": str(offset),
        "X-Size": str(offset + len(data)),
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "attachment",
        "Cache-Control": "no-store",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _number(context: ApiContext, id: str, trial_id: str, attempt: int | None) -> int:
    """The attempt that is asked about. Raises NotFound."""
    latest = await context.service.read(id, lambda c: answers.attempt_number(c, trial_id))
    if attempt is not None and attempt > latest:
        raise NotFound(f"trial {trial_id} has no attempt {attempt}; its latest is {latest}")
    return attempt or latest
