"""Files of a trial's folder, and the experiment's logs. Only plain names are accepted, so no path leaves the folder."""

from __future__ import annotations

import asyncio
import os
import re

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from nni_manager.api import logs
from nni_manager.api.context import ApiContext
from nni_manager.api.logs import file_response
from nni_manager.api.nni.addressed import addressed, folder, trial_of
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory
from nni_manager.store.experiment import answers
from trial_runner.protocol import LOG_FILES

_PLAIN = re.compile(r"[^/\\\0.][^/\\\0]{0,254}")


async def trial_file(request: Request) -> Response:
    """A file of a trial's current attempt; as bytes, except its three text files."""
    context, id_ = addressed(request)
    name, trial_id = _plain(request), trial_of(request)
    attempt = await context.service.read(id_, lambda c: answers.attempt_number(c, trial_id))
    if name in LOG_FILES:
        return await _text(context, id_, trial_id, attempt, name)
    response = await logs.attempt_file(context, id_, trial_id, attempt, name, 0, None)
    response.headers["Content-Type"] = "application/octet-stream"
    return response


async def _text(context: ApiContext, id_: str, trial_id: str, attempt: int, name: str) -> Response:
    """The text of a trial's file, or that it is empty: NNI's page links all three files of every trial."""
    trials = (await context.service.entry(id_)).folder.trials
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
    return await file_response((await folder(request)).log, _plain(request), 0, None)


def _plain(request: Request) -> str:
    name = str(request.path_params["name"])
    if _PLAIN.fullmatch(name) is None:
        raise NotFound(f"{name!r} is no name of a file here")
    return name
