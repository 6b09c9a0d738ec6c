"""Trials of an experiment, their results and TensorBoards.

SQLite builds the JSON of lists, without Python objects for rows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response
from fastapi import Path as PathParameter
from pydantic import Field

from nni_manager.api.context import Context, ExperimentId, TrialId
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.api.schemas.trials import AddedTrial, MetricList, NewTrial, TrialList, TrialWithAttempts
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.ids import TRIAL_ID
from nni_manager.domain.metrics import MetricType
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.tensorboard.board import Board, BoardStatus
from nni_manager.store.experiment import answers

router = APIRouter(prefix="/api/v1/experiments/{id}/trials", tags=["trials"], dependencies=KNOWN_QUERY)


class TrialOrder(StrEnum):
    """The orders that `answers.TRIAL_ORDERS` knows."""

    SEQUENCE = "sequence"
    SEQUENCE_DOWN = "-sequence"
    FINAL = "final"
    FINAL_DOWN = "-final"


@router.get(
    "",
    operation_id="listTrials",
    summary="List the trials of an experiment",
    response_model=TrialList,
    responses=documented(400, 404, 503),
)
async def list_all(
    id: ExperimentId,
    context: Context,
    status: Annotated[TrialStatus | None, Query(description="Only those with this status.")] = None,
    order: Annotated[
        TrialOrder,
        Query(
            description="Order by sequence id or final result; a minus: descending. Trials without result come last."
        ),
    ] = TrialOrder.SEQUENCE,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number.")] = 100,
    offset: Annotated[int, Query(ge=0, le=2**53, description="Number to skip at the beginning.")] = 0,
) -> Response:
    """A page of trials."""
    return _json(
        await context.commands.read(
            id, lambda c: answers.trials(c, status=status, order=order, limit=limit, offset=offset)
        )
    )


@router.post(
    "",
    operation_id="addTrial",
    summary="Add a trial with your own parameters",
    status_code=201,
    responses=documented(400, 404, 409, 413, 503),
)
async def add(id: ExperimentId, body: Annotated[NewTrial, Body()], context: Context) -> AddedTrial:
    """Adds a trial with these parameters. It waits for a free slot, and counts towards `maxTrialNumber`."""
    return AddedTrial.model_validate(await context.commands.add_trial(id, body.parameters, body.repeats))


@router.get(
    "/{trialId}",
    operation_id="getTrial",
    summary="Get a trial with its attempts",
    response_model=TrialWithAttempts,
    responses=documented(404, 503),
)
async def show(id: ExperimentId, trial_id: TrialId, context: Context) -> Response:
    """Attempts include exit code, signal, and the last lines of standard error."""
    return _json(await context.commands.read(id, lambda c: answers.trial(c, trial_id)))


@router.post(
    "/{trialId}/kill",
    operation_id="killTrial",
    summary="Stop a trial",
    status_code=202,
    response_class=Response,
    responses=documented(404, 409, 503),
)
async def kill(id: ExperimentId, trial_id: TrialId, context: Context) -> Response:
    """Answers when the request is stored; the trial is USER_CANCELED after its end. No effect on a finished trial."""
    await context.commands.kill_trial(id, trial_id)
    return Response(status_code=202)


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


metrics_router = APIRouter(prefix="/api/v1/experiments/{id}/metrics", tags=["results"], dependencies=KNOWN_QUERY)

_MetricNumber = Annotated[int, Query(ge=0, le=2**53)]


@metrics_router.get(
    "",
    operation_id="listMetrics",
    summary="List results in the order of storing",
    response_model=MetricList,
    responses=documented(400, 404, 503),
)
async def list_metrics(
    id: ExperimentId,
    context: Context,
    trial: Annotated[str | None, Query(description="Only those of this trial.")] = None,
    type: Annotated[MetricType | None, Query(description="Only intermediate (PERIODICAL) or FINAL ones.")] = None,
    after: Annotated[_MetricNumber, Query(description="Only those with a greater id.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number.")] = 1000,
    offset: Annotated[_MetricNumber, Query(description="Number to skip at the beginning.")] = 0,
) -> Response:
    """Results of all attempts. To follow an experiment, repeat the request with `after` set to the last id."""
    text = await context.commands.read(
        id, lambda c: answers.metrics(c, trial_id=trial, type=type, after=after, limit=limit, offset=offset)
    )
    return Response(text, media_type="application/json")


tensorboards_router = APIRouter(
    prefix="/api/v1/experiments/{id}/tensorboards", tags=["trials"], dependencies=KNOWN_QUERY
)


class NewTensorBoard(Sent):
    """A request for a TensorBoard."""

    trials: list[str] = Field(description="Ids of its trials, at most 200.", min_length=1, max_length=200)
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Its port; default: the first free one from 6006."
    )


class TensorBoard(Wire):
    """A process of the program `tensorboard` on the manager's machine."""

    id: str = Field(description="Its id.", examples=["3fa01c"])
    status: BoardStatus = Field(description="RUNNING; DOWNLOADING_DATA: starting; STOPPED; ERROR.")
    trials: list[str] = Field(description="Ids of its trials; only trials with files on that machine are shown.")
    folders: list[str] = Field(description="The folder of each trial, $NNI_OUTPUT_DIR/tensorboard.")
    port: int = Field(description="Its port on 127.0.0.1.")
    url: str = Field(description="Its address, reachable only from the manager's machine.")
    pid: int | None = Field(description="Its process; null: none yet.")


class TensorBoardList(Wire):
    tensorboards: list[TensorBoard] = Field(description="Those of the experiment, oldest first.")


_BoardId = Annotated[str, PathParameter(alias="boardId", description="Id of the TensorBoard.")]


@tensorboards_router.post(
    "",
    operation_id="startTensorBoard",
    summary="Start TensorBoard for trials",
    status_code=201,
    responses=documented(400, 404, 409, 413, 503),
)
async def start_tensorboard(id: ExperimentId, body: NewTensorBoard, context: Context) -> TensorBoard:
    """Answers when TensorBoard answers. Requires the program `tensorboard`. It listens on 127.0.0.1 of the manager's
    machine, and ends with experiment or manager, or after an hour without a browser."""
    if not all(map(TRIAL_ID.fullmatch, body.trials)):
        raise InvalidInput("trials: must be ids of trials")
    return _shown(await context.commands.tensorboards.start(id, body.trials, body.port))


@tensorboards_router.get(
    "", operation_id="listTensorBoards", summary="List TensorBoards of an experiment", responses=documented(404, 503)
)
async def list_tensorboards(id: ExperimentId, context: Context) -> TensorBoardList:
    """TensorBoards that are running or starting."""
    return TensorBoardList(tensorboards=[_shown(board) for board in context.commands.tensorboards.of(id)])


@tensorboards_router.delete(
    "",
    operation_id="stopTensorBoards",
    summary="Stop all TensorBoards of an experiment",
    status_code=204,
    responses=documented(404, 503),
)
async def stop_tensorboards(id: ExperimentId, context: Context) -> None:
    """No effect if none runs."""
    await context.commands.tensorboards.stop_all(id)


@tensorboards_router.delete(
    "/{boardId}",
    operation_id="stopTensorBoard",
    summary="Stop a TensorBoard",
    status_code=204,
    responses=documented(404, 503),
)
async def stop_tensorboard(id: ExperimentId, board_id: _BoardId, context: Context) -> None:
    """Answers when the process has ended."""
    boards = context.commands.tensorboards
    await boards.stop(boards.get(id, board_id))


def _shown(board: Board) -> TensorBoard:
    return TensorBoard(
        id=board.id,
        status=board.status,
        trials=[one.trial_id for one in board.logs],
        folders=[str(one.path) for one in board.logs],
        port=board.port,
        url=board.url,
        pid=board.pid,
    )
