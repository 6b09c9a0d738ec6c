"""TensorBoards: started for trials, listed, stopped."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nni_manager.api.nni.addressed import addressed, nothing, read_json
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.ids import TRIAL_ID
from nni_manager.scheduler.tensorboard.board import Board


async def start(request: Request) -> Response:
    """``{"trials": "id1,id2"}`` → the task, once TensorBoard answers."""
    context, id_ = addressed(request)
    body = await read_json(request)
    words = body.get("trials") if isinstance(body, dict) else None
    ids = [word.strip() for word in words.split(",")] if isinstance(words, str) else []
    if not ids or not all(map(TRIAL_ID.fullmatch, ids)):
        raise InvalidInput("trials: must be the ids of trials, joined by commas")
    return JSONResponse(_task(await context.service.tensorboards.start(id_, ids)))


async def show(request: Request) -> Response:
    """A task. Asked for anew (PUT), there is nothing to be done: TensorBoard reads the folders themselves."""
    return JSONResponse(_task(_board(request)))


async def list_all(request: Request) -> Response:
    context, id_ = addressed(request)
    return JSONResponse([_task(board) for board in context.service.tensorboards.of(id_)])


async def stop(request: Request) -> Response:
    """The task as it is when it has ended."""
    board = _board(request)
    await addressed(request)[0].service.tensorboards.stop(board)
    return JSONResponse(_task(board))


async def stop_all(request: Request) -> Response:
    context, id_ = addressed(request)
    await context.service.tensorboards.stop_all(id_)
    return nothing()


def _board(request: Request) -> Board:
    """Raises NotFound."""
    context, id_ = addressed(request)
    return context.service.tensorboards.get(id_, str(request.path_params["id"]))


def _task(board: Board) -> dict[str, Any]:
    """A task in NNI's shape: the port is a text."""
    return {
        "id": board.id,
        "status": board.status,
        "trialJobIdList": [one.trial_id for one in board.logs],
        "trialLogDirectoryList": [str(one.path) for one in board.logs],
        "pid": board.pid,
        "port": str(board.port),
    }
