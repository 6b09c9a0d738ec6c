"""Files that trials and the manager write, open experiment or closed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from nni_manager.api import attempt_file, log_file
from nni_manager.api.context import ApiContext, Context
from nni_manager.api.errors import documented
from nni_manager.api.identifiers import ExperimentId, TrialId
from nni_manager.domain.errors import NotFound
from nni_manager.store import answers
from nni_manager.store.folder import Folder
from trial_runner.protocol import LOG_FILES

router = APIRouter(prefix="/api/v1/experiments/{id}", tags=["logs"])

EXPERIMENT_FILES = ("nnimanager.log", "dispatcher.log")

_Offset = Annotated[
    int, Query(ge=-(2**53), le=2**53, description="First byte; negative: that many bytes before the end.")
]
_Limit = Annotated[int | None, Query(ge=0, le=2**53, description="Bytes at most; not given: up to the end.")]
_ANSWER = {
    200: {
        "description": "The stretch, as it stands in the file.",
        "content": {"text/plain": {"schema": {"type": "string", "description": "Bytes of the file."}}},
        "headers": {
            "X-Offset": {"description": "First byte of the stretch.", "schema": {"type": "integer"}},
            "X-Size": {"description": "Bytes the file holds now.", "schema": {"type": "integer"}},
        },
    },
    **documented(400, 404, 503),
}


@router.get(
    "/trials/{trialId}/logs/{name}", operation_id="readTrialLog", summary="A file a trial wrote",
    response_class=StreamingResponse, responses=_ANSWER,
)  # fmt: skip
async def read_trial(
    id: ExperimentId,
    trial_id: TrialId,
    name: Annotated[str, PathParameter(description="`stdout`, `stderr` or `trial.log`.")],
    context: Context,
    offset: _Offset = 0,
    limit: _Limit = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**31, description="Which attempt; not given: the latest.")] = None,
) -> StreamingResponse:
    """From the attempt's folder on this machine; where its logs are not there, its training service is asked."""
    _require(name, LOG_FILES)
    latest = await context.service.read(id, lambda c: answers.attempt_number(c, trial_id))
    if attempt is not None and attempt > latest:
        raise NotFound(f"trial {trial_id} has no attempt {attempt}; its latest is {latest}")
    return await attempt_file.stretch(context, id, trial_id, attempt or latest, name, offset, limit)


@router.get(
    "/logs/{name}", operation_id="readExperimentLog", summary="A log of the manager",
    response_class=StreamingResponse, responses=_ANSWER,
)  # fmt: skip
async def read_experiment(
    id: ExperimentId,
    name: Annotated[
        str,
        PathParameter(description="`nnimanager.log`: what happened; `dispatcher.log`: what tuner and assessor wrote."),
    ],
    context: Context,
    offset: _Offset = 0,
    limit: _Limit = None,
) -> StreamingResponse:
    """Of one experiment."""
    _require(name, EXPERIMENT_FILES)
    return await log_file.stretch((await _folder(context, id)).log, name, offset, limit)


async def _folder(context: ApiContext, id: str) -> Folder:
    return (await context.service.entry(id)).folder


def _require(name: str, names: tuple[str, ...]) -> None:
    """The name is one of these, and never part of a path that the sender made up."""
    if name not in names:
        raise NotFound(f"there is no log {name!r}; there are {', '.join(names)}")
