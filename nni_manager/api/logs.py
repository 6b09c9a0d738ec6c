"""Files of trials and logs of experiments, listed and read in byte ranges.

A file may grow, shrink or be replaced at any time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from nni_manager.api.context import ApiContext, Context, ExperimentId, TrialId
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.trials import TrialFile, TrialFileList
from nni_manager.domain.errors import NotFound
from nni_manager.scheduler.experiments import attempt_logs
from nni_manager.scheduler.experiments.attempt_logs import LogFile, file_here
from nni_manager.store.experiment import answers
from trial_runner.protocol import LOG_FILES


async def file_response(folder: Path, name: str, offset: int, limit: int | None) -> StreamingResponse:
    """A range of a file on this machine, like `range_response`. `name`: relative path; links are not followed."""
    return await range_response(file_here(folder, name), offset, limit)


async def range_response(file: LogFile, offset: int, limit: int | None) -> StreamingResponse:
    """A range of a file: at most `limit` bytes from `offset` (negative: from the end), up to its present end.

    Headers: ``X-Offset``, first byte; ``X-Size``, size of the file in bytes. Raises NotFound, PlatformUnavailable.
    """
    size = await file.size()
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    end = size if limit is None else min(size, start + limit)
    headers = {"X-Offset": str(start), "X-Size": str(size), "Cache-Control": "no-store"}
    return StreamingResponse(file.pieces(start, end), media_type="text/plain; charset=utf-8", headers=headers)


router = APIRouter(prefix="/api/v1/experiments/{id}", tags=["logs"], dependencies=KNOWN_QUERY)

EXPERIMENT_FILES = ("nnimanager.log", "dispatcher.log")

_Offset = Annotated[int, Query(ge=-(2**53), le=2**53, description="First byte; negative: counted from the end.")]
_Limit = Annotated[int | None, Query(ge=0, le=2**53, description="Maximum number of bytes; default: up to the end.")]
_ANSWER = {
    200: {
        "description": "The bytes of the file.",
        "content": {"text/plain": {"schema": {"type": "string", "description": "Bytes of the file."}}},
        "headers": {
            "X-Offset": {"description": "Offset of the first byte.", "schema": {"type": "integer"}},
            "X-Size": {"description": "Current size of the file in bytes.", "schema": {"type": "integer"}},
        },
    },
    **documented(400, 404, 503),
}


@router.get(
    "/trials/{trialId}/logs/{name}",
    operation_id="readTrialLog",
    summary="Read a log of a trial",
    response_class=StreamingResponse,
    responses=_ANSWER,
)
async def read_trial(
    id: ExperimentId,
    trial_id: TrialId,
    name: Annotated[str, PathParameter(description="`stdout`, `stderr` or `trial.log`.")],
    context: Context,
    offset: _Offset = 0,
    limit: _Limit = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**31, description="Which attempt; not given: the latest.")] = None,
) -> StreamingResponse:
    """A log of a trial, from its folder on this machine or else from the training service."""
    _require(name, LOG_FILES)
    number = await _number(context, id, trial_id, attempt)
    return await attempt_file(context, id, trial_id, number, name, offset, limit)


@router.get(
    "/logs/{name}",
    operation_id="readExperimentLog",
    summary="Read a log of an experiment",
    response_class=StreamingResponse,
    responses=_ANSWER,
)
async def read_experiment(
    id: ExperimentId,
    name: Annotated[
        str,
        PathParameter(
            description="`nnimanager.log`: log of the experiment; `dispatcher.log`: output of tuner and assessor."
        ),
    ],
    context: Context,
    offset: _Offset = 0,
    limit: _Limit = None,
) -> StreamingResponse:
    """A log of an experiment."""
    _require(name, EXPERIMENT_FILES)
    return await file_response((await context.commands.entry(id)).folder.log, name, offset, limit)


def _require(name: str, names: tuple[str, ...]) -> None:
    """Raise NotFound for other names than `names`, so that no other path can be read."""
    if name not in names:
        raise NotFound(f"cannot find log {name!r}; use {', '.join(names)}")


async def attempt_file(
    context: ApiContext, id: str, trial_id: str, attempt: int, name: str, offset: int, limit: int | None
) -> StreamingResponse:
    """A range of an attempt's file, as `range_response`. Raises NotFound, PlatformUnavailable."""
    return await range_response(await attempt_logs.find(context.commands, id, trial_id, attempt, name), offset, limit)


#: Maximum size of an answer, in bytes.
_MOST = 4 * 1024 * 1024

files_router = APIRouter(
    prefix="/api/v1/experiments/{id}/trials/{trialId}/files", tags=["logs"], dependencies=KNOWN_QUERY
)

_Attempt = Annotated[int | None, Query(ge=1, le=2**31, description="Which attempt; not given: the latest.")]


@files_router.get(
    "", operation_id="listTrialFiles", summary="List the files of a trial", responses=documented(400, 404, 503)
)
async def list_files(id: ExperimentId, trial_id: TrialId, context: Context, attempt: _Attempt = None) -> TrialFileList:
    """The files in the attempt's folder, here or elsewhere, and in the trial's checkpoint folder on this machine."""
    number = await _number(context, id, trial_id, attempt)
    found = await attempt_logs.files(context.commands, id, trial_id, number)
    here = [TrialFile(name=name, place="here") for name in found.here]
    there = [TrialFile(name=name, place="service") for name in found.at_service]
    return TrialFileList(attempt=number, files=sorted([*here, *there], key=lambda file: file.name), why=found.why)


@files_router.get(
    "/{name:path}",
    operation_id="readTrialFile",
    summary="Read a range of a file of a trial",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes of the file; empty at its end.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "headers": {
                "X-Offset": {"description": "Offset of the first byte.", "schema": {"type": "integer"}},
                "X-Size": {"description": "Bytes up to the end of the range.", "schema": {"type": "integer"}},
            },
        },
        **documented(400, 404, 503),
    },
)
async def read_file(
    id: ExperimentId,
    trial_id: TrialId,
    name: Annotated[str, PathParameter(description="Name from the list of files.")],
    context: Context,
    offset: Annotated[int, Query(ge=0, le=2**53, description="First byte.")] = 0,
    limit: Annotated[int, Query(ge=0, le=_MOST, description="Maximum number of bytes.")] = _MOST,
    attempt: _Attempt = None,
) -> Response:
    """A file below the attempt's folder; links are not followed."""
    number = await _number(context, id, trial_id, attempt)
    file = await attempt_logs.find(context.commands, id, trial_id, number, name, forgotten=True)
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
    """The number of the requested attempt. Raises NotFound."""
    latest = await context.commands.read(id, lambda c: answers.attempt_number(c, trial_id))
    if attempt is not None and attempt > latest:
        raise NotFound(f"trial {trial_id} has no attempt {attempt}; its latest is {latest}")
    return attempt or latest
