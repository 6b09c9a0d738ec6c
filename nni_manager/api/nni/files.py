"""What a trial wrote into its folder, and the experiment's logs. Names are plain: no path leads out of the folder."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from nni_manager.api.log_file import stretch
from nni_manager.api.nni.addressed import addressed, folder, trial_of
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory
from nni_manager.store import answers
from trial_runner.protocol import LOG_FILES

_PLAIN = re.compile(r"[^/\\\0.][^/\\\0]{0,254}")


async def trial_file(request: Request) -> Response:
    """A file of a trial's current attempt; anything but its three texts as bytes."""
    context, id_ = addressed(request)
    name, trial_id = _plain(request), trial_of(request)
    attempt = await context.service.read(id_, lambda c: answers.attempt_number(c, trial_id))
    trials, path = (await folder(request)).trials, f"{attempt_directory(trial_id, attempt)}/{name}"
    if name in LOG_FILES:
        return await _text(trials, path)
    response = await stretch(trials, path, 0, None)
    response.headers["Content-Type"] = "application/octet-stream"
    return response


async def _text(trials: Path, path: str) -> Response:
    """NNI's page offers all three of every trial, and not every trial writes all three."""
    is_there = await asyncio.to_thread(os.path.lexists, trials / path)  # a link is no text, and is not followed
    response = await stretch(trials, path, 0, None) if is_there else None
    if response is None or response.headers["X-Size"] == "0":
        return PlainTextResponse(f"{os.path.basename(path)} is empty.")
    return response


async def log_file(request: Request) -> Response:
    """A file of the experiment's `log` folder."""
    return await stretch((await folder(request)).log, _plain(request), 0, None)


def _plain(request: Request) -> str:
    name = str(request.path_params["name"])
    if _PLAIN.fullmatch(name) is None:
        raise NotFound(f"{name!r} is no name of a file here")
    return name
