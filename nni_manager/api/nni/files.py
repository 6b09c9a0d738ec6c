"""Files of a trial's folder, the experiment's logs, and TensorBoards of trials.

Only plain file names are accepted, so that no path leaves the folder.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from nni_manager.api import logs
from nni_manager.api.context import ApiContext
from nni_manager.api.logs import file_response
from nni_manager.api.nni.addressed import addressed, nothing, read_json, trial_of
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.ids import TRIAL_ID, attempt_directory
from nni_manager.scheduler.tensorboard.board import Board
from nni_manager.store.experiment import answers
from trial_runner.protocol import LOG_FILES

#: NNI 3.0's names of the texts.
_TEXTS = {**{name: name for name in LOG_FILES}, "trial.stdout": "stdout", "trial.stderr": "stderr"}
_PLAIN = re.compile(r"[^/\\\0.][^/\\\0]{0,254}")


async def trial_file(request: Request, context: ApiContext, id_: str) -> Response:
    """A file of a trial's current attempt: three text files, by our names or NNI 3.0's; others as bytes."""
    name, trial_id = _plain(request), trial_of(request)
    attempt = await context.commands.read(id_, lambda c: answers.attempt_number(c, trial_id))
    if name in _TEXTS:
        return await _text(context, id_, trial_id, attempt, _TEXTS[name])
    response = await logs.attempt_file(context, id_, trial_id, attempt, name, 0, None)
    response.headers["Content-Type"] = "application/octet-stream"
    return response


async def _text(context: ApiContext, id_: str, trial_id: str, attempt: int, name: str) -> Response:
    """The text of a trial's file, or a note that it is empty, because NNI's page links all three of every trial."""
    trials = (await context.commands.entry(id_)).folder.trials
    path = f"{attempt_directory(trial_id, attempt)}/{name}"
    is_there = await asyncio.to_thread(os.path.lexists, trials / path)
    try:
        response: Response = await logs.attempt_file(context, id_, trial_id, attempt, name, 0, None)
    except NotFound:
        if is_there:  # links are not followed
            raise
        return _empty(name)
    return _empty(name) if response.headers["X-Size"] == "0" else response


def _empty(name: str) -> Response:
    return PlainTextResponse(f"{name} is empty.")


async def log_file(request: Request) -> Response:
    """A file of the experiment's `log` folder."""
    context, id_ = addressed(request)
    return await file_response((await context.commands.folder(id_)).log, _plain(request), 0, None)


def _plain(request: Request) -> str:
    name = str(request.path_params["name"])
    if _PLAIN.fullmatch(name) is None:
        raise NotFound(f"cannot find file {name!r} here")
    return name


async def start_tensorboard(request: Request, context: ApiContext, id_: str) -> Response:
    """``{"trials": "id1,id2"}`` → the task, once TensorBoard answers."""
    body = await read_json(request)
    words = body.get("trials") if isinstance(body, dict) else None
    ids = [word.strip() for word in words.split(",")] if isinstance(words, str) else []
    if not ids or not all(map(TRIAL_ID.fullmatch, ids)):
        raise InvalidInput("trials: must be comma-separated ids of trials")
    return JSONResponse(_task(await context.commands.tensorboards.start(id_, ids)))


async def show_tensorboard(request: Request, context: ApiContext, id_: str) -> Response:
    """A task. An update (PUT) does nothing, because TensorBoard reads the folders itself."""
    return JSONResponse(_task(_board(request, context, id_)))


async def list_tensorboards(request: Request, context: ApiContext, id_: str) -> Response:
    return JSONResponse([_task(board) for board in context.commands.tensorboards.of(id_)])


async def stop_tensorboard(request: Request, context: ApiContext, id_: str) -> Response:
    """The task after its end."""
    board = _board(request, context, id_)
    await context.commands.tensorboards.stop(board)
    return JSONResponse(_task(board))


async def stop_tensorboards(request: Request, context: ApiContext, id_: str) -> Response:
    await context.commands.tensorboards.stop_all(id_)
    return nothing()


def _board(request: Request, context: ApiContext, id_: str) -> Board:
    """The TensorBoard of a request. Raises NotFound."""
    return context.commands.tensorboards.get(id_, str(request.path_params["id"]))


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
