"""The routes that trial runners post to: an application of its own, on a door of its own, one token an attempt.

The wire contract is `trial_runner.protocol`. Idempotent throughout: a runner that heard no answer asks again.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.body_limit import LimitedBody
from nni_manager.api.errors import status_of
from nni_manager.domain.errors import Conflict, InvalidInput, NniManagerError, TooBusy, VersionRefused
from nni_manager.domain.ids import EXPERIMENT_ID, TRIAL_ID
from nni_manager.scheduler.runner_desk import RunnerDesk, RunnerOf

#: A post holds at most 256 KiB of lines; JSON may make each byte six.
BODY_LIMIT = 2 * 1024 * 1024
#: Seconds between two heartbeats of a runner.
HEARTBEAT_S = 5

Json = dict[str, Any]
_PREFIX = "/trial/v1/{experiment}/{trial}/{attempt:int}"


def create_trial_listener(desk: RunnerDesk) -> ASGIApp:
    """One ASGI application, its limit of the body's size included."""
    routes = _Routes(desk)
    listener = Starlette(
        routes=[
            Route(f"{_PREFIX}/version", routes.version, methods=["POST"]),
            Route(f"{_PREFIX}/parameters", routes.parameters, methods=["GET"]),
            Route(f"{_PREFIX}/code", routes.code, methods=["GET"]),
            Route(f"{_PREFIX}/outboxes", routes.outboxes, methods=["GET"]),
            Route(f"{_PREFIX}/status", routes.status, methods=["POST"]),
            Route(f"{_PREFIX}/metrics", routes.metrics, methods=["POST"]),
            Route(f"{_PREFIX}/log", routes.log, methods=["POST"]),
            Route(f"{_PREFIX}/heartbeat", routes.heartbeat, methods=["POST"]),
        ],
        exception_handlers={NniManagerError: _on_domain_error, HTTPException: _on_http_error},
    )

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        await listener(scope, LimitedBody(receive, BODY_LIMIT).receive, send)

    return limited


class _Routes:
    def __init__(self, desk: RunnerDesk) -> None:
        self._desk = desk

    async def version(self, request: Request) -> Response:
        who, body = self._who(request), await _body(request)
        await self._desk.greet(who, _text(body, "version", None), _text(body, "channel", "push") or "push")
        return JSONResponse({"accepted": True, "managerVersion": self._desk.manager_version})

    async def parameters(self, request: Request) -> Response:
        return Response(await self._desk.record(self._who(request)), media_type="application/json")

    async def code(self, request: Request) -> Response:
        path = await self._desk.code(self._who(request))
        if path is None:
            return Response(status_code=204)
        return FileResponse(path, media_type="application/gzip", headers={"ETag": f'"{path.name.partition(".")[0]}"'})

    async def outboxes(self, request: Request) -> Response:
        return JSONResponse(await self._desk.offsets(self._who(request)))

    async def status(self, request: Request) -> Response:
        who, body = self._who(request), await _body(request)
        event = _text(body, "event")
        if event == "started":
            return self._orders(who, await self._desk.started(who, _number(body, "startedMs", None)))
        if event == "exited":
            return self._orders(who, await self._desk.exited(who, json.dumps(_exit(body))))
        raise InvalidInput(f"event: must be started or exited, not {event!r}")

    async def metrics(self, request: Request) -> Response:
        who, body = self._who(request), await _body(request)
        lines = body.get("lines")
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise InvalidInput("lines: must be a list of texts")
        start, end = _count(body, "start"), _count(body, "end")
        offset = await self._desk.lines(who, str(_text(body, "outbox")), start, end, lines)
        return JSONResponse({"offset": offset})

    async def log(self, request: Request) -> Response:
        who, body = self._who(request), await _body(request)
        file, data = str(_text(body, "file")), str(_text(body, "data")).encode()
        source = _text(body, "source") or ""
        offset = await self._desk.write_log(who, file, _count(body, "offset"), data, source)
        return JSONResponse({"offset": offset})

    async def heartbeat(self, request: Request) -> Response:
        who = self._who(request)
        return self._orders(who, await self._desk.must_stop(who), everyS=HEARTBEAT_S)

    def _orders(self, who: RunnerOf, must_stop: bool, **more: object) -> Response:
        return JSONResponse({"stop": must_stop, "graceS": self._desk.grace_s(who), **more})

    def _who(self, request: Request) -> RunnerOf:
        """The attempt in the path, once the token is its. Ids that can be none are as unknown as any."""
        experiment, trial = request.path_params["experiment"], request.path_params["trial"]
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise HTTPException(401, "send the attempt's token as `Authorization: Bearer`")
        who = RunnerOf(experiment_id=experiment, trial_id=trial, attempt=request.path_params["attempt"])
        known = EXPERIMENT_ID.fullmatch(experiment) and TRIAL_ID.fullmatch(trial)
        if not known or not self._desk.tokens.is_token(who.job_name, token.strip()):
            raise HTTPException(403, "this token is not the one of this attempt")
        return who


async def _body(request: Request) -> Json:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
    if not isinstance(body, dict):
        raise InvalidInput("the body must be a JSON object")
    return body


def _text(body: Json, name: str, default: str | None = "") -> str | None:
    value = body.get(name, default)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name}: must be text")
    return value


def _number(body: Json, name: str, default: int | None) -> int | None:
    value = body.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidInput(f"{name}: must be a whole number")
    return value


def _count(body: Json, name: str) -> int:
    value = _number(body, name, None)
    if value is None or not 0 <= value < 1 << 62:
        raise InvalidInput(f"{name}: must be a whole number of at least 0")
    return value


def _exit(body: Json) -> Json:
    """What is kept of the word about the end. Raises InvalidInput."""
    outboxes = body.get("outboxes") or {}
    if not isinstance(outboxes, dict) or not all(isinstance(size, int) for size in outboxes.values()):
        raise InvalidInput("outboxes: must be an object of names and sizes")
    exit_code, signal = _number(body, "exitCode", None), _number(body, "signal", None)
    if exit_code is None and signal is None:
        raise InvalidInput("exitCode or signal: one of them must be given")
    return {
        "exitCode": exit_code, "signal": signal, "stderrTail": (_text(body, "stderrTail") or "")[-2048:],
        "startedMs": _number(body, "startedMs", None), "endedMs": _number(body, "endedMs", None), "outboxes": outboxes,
    }  # fmt: skip


async def _on_domain_error(_: Request, error: Exception) -> Response:
    headers = {"Retry-After": "1"} if isinstance(error, TooBusy) else None
    return JSONResponse({"error": str(error)}, _status(error), headers)


def _status(error: Exception) -> int:
    """As everywhere, but an attempt that is over is 410 and an experiment that is closed as well."""
    if isinstance(error, Conflict):
        return 410
    return int(_STATUS.get(type(error)) or status_of(error))


_STATUS: dict[type[Exception], int] = {VersionRefused: 409, TooBusy: 429}


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
