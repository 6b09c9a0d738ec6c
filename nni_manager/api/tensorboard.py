"""TensorBoards of an experiment: start, list, stop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import ConfigDict, Field

from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.ids import TRIAL_ID
from nni_manager.scheduler.tensorboard.board import Board, BoardStatus

router = APIRouter(prefix="/api/v1/experiments/{id}/tensorboards", tags=["trials"])


class NewTensorBoard(Sent):
    """A request for a TensorBoard."""

    model_config = ConfigDict(extra="forbid")

    trials: list[str] = Field(description="Ids of the trials that it shows, 200 at most.", min_length=1, max_length=200)
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Its port; not given: the first free one from 6006 on."
    )


class TensorBoard(Wire):
    """A process of the program `tensorboard` on the manager's machine."""

    id: str = Field(description="Its id.", examples=["3fa01c"])
    status: BoardStatus = Field(description="RUNNING; DOWNLOADING_DATA: being started; STOPPED; ERROR.")
    trials: list[str] = Field(description="Ids of the trials that it shows: those whose files are on that machine.")
    folders: list[str] = Field(description="What it reads of each: $NNI_OUTPUT_DIR/tensorboard.")
    port: int = Field(description="Its port on 127.0.0.1.")
    url: str = Field(description="Its address, on the manager's machine alone.")
    pid: int | None = Field(description="Its process; null: none yet.")


class TensorBoardList(Wire):
    tensorboards: list[TensorBoard] = Field(description="Those of the experiment, oldest first.")


_BoardId = Annotated[str, PathParameter(alias="boardId", description="Id of the TensorBoard.")]


@router.post(
    "",
    operation_id="startTensorBoard",
    summary="Start TensorBoard for trials",
    status_code=201,
    responses=documented(400, 404, 409, 413, 503),
)
async def start(id: ExperimentId, body: NewTensorBoard, context: Context) -> TensorBoard:
    """Answers once it does. It needs the program `tensorboard`, listens on 127.0.0.1 of the manager's machine, and ends
    with experiment and manager, or after an hour without a browser."""
    if not all(map(TRIAL_ID.fullmatch, body.trials)):
        raise InvalidInput("trials: must be ids of trials")
    return _shown(await context.service.tensorboards.start(id, body.trials, body.port))


@router.get(
    "", operation_id="listTensorBoards", summary="TensorBoards of an experiment", responses=documented(404, 503)
)
async def list_all(id: ExperimentId, context: Context) -> TensorBoardList:
    """TensorBoards that run or are being started."""
    return TensorBoardList(tensorboards=[_shown(board) for board in context.service.tensorboards.of(id)])


@router.delete(
    "",
    operation_id="stopTensorBoards",
    summary="Stop all TensorBoards of an experiment",
    status_code=204,
    responses=documented(404, 503),
)
async def stop_all(id: ExperimentId, context: Context) -> None:
    """Quiet where none runs."""
    await context.service.tensorboards.stop_all(id)


@router.delete(
    "/{boardId}",
    operation_id="stopTensorBoard",
    summary="Stop a TensorBoard",
    status_code=204,
    responses=documented(404, 503),
)
async def stop(id: ExperimentId, board_id: _BoardId, context: Context) -> None:
    """Returns when the process has ended."""
    boards = context.service.tensorboards
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
