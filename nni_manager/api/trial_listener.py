"""The routes that trial runners post to: an application of its own, on a listener of its own, one token per attempt.

The wire contract is `trial_runner.protocol`. Idempotent throughout: a runner that heard no answer asks again. Nothing
of a request is read before its token was checked, and no more of all bodies together than the listener has room for.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nni_manager.api import trial_posts as posts
from nni_manager.api.errors import Barrier
from nni_manager.api.guard import BodyTooLarge, LimitedBody, harden
from nni_manager.api.trial_posts import Json
from nni_manager.api.trial_room import Body, Room
from nni_manager.domain.errors import Conflict, InvalidInput, NniManagerError, TooBusy, VersionRefused, status_of
from nni_manager.domain.ids import ATTEMPT, CONTAINER, EXPERIMENT_ID, TRIAL_ID
from nni_manager.scheduler.turns.runner_reports import RunnerOf, RunnerReports
from trial_runner import protocol

#: A post holds 256 KiB of lines, or one line of any length that is taken, of which JSON may make each byte two.
BODY_LIMIT = 2 * protocol.MAX_RECORD + 1024 * 1024
#: Bytes of all large bodies that are being taken in.
ROOM_BYTES = 2 * BODY_LIMIT
#: Seconds for a whole body to arrive.
BODY_S = 60.0
#: Seconds between two heartbeats of a runner.
HEARTBEAT_S = 5

#: Requests by what became of them, since the process started; see `outcome`.
answered: Counter[str] = Counter()

Take = Callable[[RunnerOf, Json], Awaitable[Response]]
_PREFIX = "/trial/v1/{experiment}/{trial}/{attempt}"


def create_trial_listener(reports: RunnerReports) -> ASGIApp:
    """One ASGI application, its limit of the body's size included."""
    routes = _Routes(reports)
    gets = {"parameters": routes.parameters, "code": routes.code, "outboxes": routes.outboxes}
    takes = {
        "version": routes.version, "status": routes.status, "metrics": routes.metrics, "log": routes.log,
        "heartbeat": routes.heartbeat,
    }  # fmt: skip
    listener = Starlette(
        routes=[Route(f"{_PREFIX}/{name}", get, methods=["GET"]) for name, get in gets.items()]
        + [Route(f"{_PREFIX}/{name}", routes.taking(take), methods=["POST"]) for name, take in takes.items()],
        exception_handlers={NniManagerError: _on_domain_error, HTTPException: _on_http_error},
        middleware=[Middleware(Barrier)],
    )

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        async def counting_send(message: Message) -> None:
            harden(message)
            if message["type"] == "http.response.start":
                answered[outcome(message["status"])] += 1
                message = {**message, "headers": [*message["headers"], *_signature(reports, scope)]}
            await send(message)

        await listener(scope, LimitedBody(receive, BODY_LIMIT).receive, counting_send)

    return limited


_ATTEMPT_PATH = re.compile(r"/trial/v1/(\w{1,64}/\w{1,64}/\d{1,9})/\w+", re.ASCII)


_REQUEST_NAME = re.compile(rb"[A-Za-z0-9-]{1,64}")


def _signature(reports: RunnerReports, scope: Scope) -> list[tuple[bytes, bytes]]:
    """Headers that tell runners that an answer is ours, about their attempt and to this request: whatever stands
    between may answer, too, and repeat what we said."""
    attempt = _ATTEMPT_PATH.fullmatch(scope["path"])
    name = f"{reports.tokens.manager}/{attempt[1]}" if attempt else reports.tokens.manager
    request = dict(scope["headers"]).get(protocol.REQUEST_HEADER.lower().encode(), b"")
    if attempt and _REQUEST_NAME.fullmatch(request):
        name += f"/{request.decode()}"
    return [(protocol.ANSWER_HEADER.lower().encode(), name.encode()), (b"cache-control", b"no-store")]


#: Statuses that have a word of their own.
_OUTCOMES = {
    401: "unauthorized",
    403: "unauthorized",
    409: "version_refused",
    410: "over",
    429: "busy",
    503: "unavailable",
}
OUTCOMES = ("taken", *dict.fromkeys(_OUTCOMES.values()), "refused", "failed")


def outcome(status: int) -> str:
    """The outcome of a request that was answered with this status; one of `OUTCOMES`."""
    if status < 400:
        return "taken"
    return _OUTCOMES.get(status) or ("refused" if status < 500 else "failed")


class _Routes:
    def __init__(self, reports: RunnerReports) -> None:
        self._reports = reports
        self._room = Room(ROOM_BYTES)

    def taking(self, take: Take) -> Callable[[Request], Awaitable[Response]]:
        """A route that takes a body, in this order: who is it, is there room, what is it."""

        async def taken(request: Request) -> Response:
            who = self._who(request)
            with self._room.body(who.job_name) as room:
                return await take(who, await _body(request, room))

        return taken

    async def version(self, who: RunnerOf, body: Json) -> Response:
        version, channel, outboxes = posts.greeting(body)
        await self._reports.greet(who, version, channel, outboxes)
        return JSONResponse({"accepted": True, "managerVersion": self._reports.manager_version})

    async def parameters(self, request: Request) -> Response:
        return Response(await self._reports.record(self._who(request)), media_type="application/json")

    async def code(self, request: Request) -> Response:
        path = await self._reports.code(self._who(request))
        if path is None:
            return Response(status_code=204)
        return FileResponse(path, media_type="application/gzip", headers={"ETag": f'"{path.name.partition(".")[0]}"'})

    async def outboxes(self, request: Request) -> Response:
        return JSONResponse(await self._reports.offsets(self._who(request)))

    async def status(self, who: RunnerOf, body: Json) -> Response:
        event = body.get("event")
        if event == "started":
            return self._orders(who, await self._reports.started(who, *posts.started(body)))
        if event == "exited":
            return self._orders(who, await self._reports.exited(who, posts.exit_word(body)))
        raise InvalidInput("event: must be started or exited")

    async def metrics(self, who: RunnerOf, body: Json) -> Response:
        stretch = posts.stretch(body)
        offset = await self._reports.lines(who, stretch.outbox, stretch.start, stretch.end, stretch.lines)
        return JSONResponse({"offset": offset})

    async def log(self, who: RunnerOf, body: Json) -> Response:
        piece = posts.piece(body)
        offset = await self._reports.write_log(who, piece.file, piece.offset, piece.data, piece.source)
        return JSONResponse({"offset": offset})

    async def heartbeat(self, who: RunnerOf, body: Json) -> Response:
        return self._orders(who, await self._reports.must_stop(who), everyS=HEARTBEAT_S)

    def _orders(self, who: RunnerOf, must_stop: bool, **more: object) -> Response:
        return JSONResponse({"stop": must_stop, "graceS": self._reports.grace_s(who), **more})

    def _who(self, request: Request) -> RunnerOf:
        """The attempt in the path, once the token is its. What can be no id is as unknown as any."""
        experiment, trial, attempt = (request.path_params[name] for name in ("experiment", "trial", "attempt"))
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            headers = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(401, "send the attempt's token as `Authorization: Bearer`", headers)
        if EXPERIMENT_ID.fullmatch(experiment) and TRIAL_ID.fullmatch(trial) and ATTEMPT.fullmatch(attempt):
            container = request.headers.get(protocol.CONTAINER_HEADER, "")
            who = RunnerOf(
                experiment_id=experiment, trial_id=trial, attempt=int(attempt),
                container=container if CONTAINER.fullmatch(container) else "",
            )  # fmt: skip
            if self._reports.tokens.is_token(who.job_name, token.strip()):
                return who
        raise HTTPException(403, "this token is not the one of this attempt")


async def _body(request: Request, room: Body) -> Json:
    """Raises BodyTooLarge before anything is read of one that announces too much."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:16]) > BODY_LIMIT:
        raise BodyTooLarge(BODY_LIMIT)
    pieces = []
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                room.grow(len(piece))
                pieces.append(piece)
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {BODY_S:g} s", {"Connection": "close"}) from None
    return posts.parse(b"".join(pieces))


async def _on_domain_error(_: Request, error: Exception) -> Response:
    headers = {"Retry-After": "1"} if isinstance(error, TooBusy) else None
    return JSONResponse({"error": str(error)}, _status(error), headers)


def _status(error: Exception) -> int:
    """The status of an error, as everywhere, but 410 for an attempt that is over and an experiment that is closed."""
    if isinstance(error, Conflict):
        return 410
    return int(_STATUS.get(type(error)) or status_of(error))


_STATUS: dict[type[Exception], int] = {VersionRefused: 409, TooBusy: 429}


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
