"""The application for trial runners: a separate listener, with a token per attempt.

The wire contract is `trial_runner.protocol`. Every request is idempotent, because a runner without an answer repeats
it. A body is read only after the token was checked. `BodyMemory` limits all bodies together.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from nni_manager.api.access.guard import HARDENING, BodyTooLarge, admit
from nni_manager.api.access.sparing import FAULT
from nni_manager.api.runners import trial_posts as posts
from nni_manager.api.runners.trial_posts import Body, BodyMemory, Json
from nni_manager.domain.errors import Conflict, InvalidInput, NniManagerError, TooBusy, VersionRefused, status_of
from nni_manager.domain.ids import ATTEMPT, CONTAINER, EXPERIMENT_ID, TRIAL_ID
from nni_manager.scheduler.experiments.runner_reports import AttemptReports, Registration, RunnerIdentity, RunnerReports
from trial_runner import protocol

log = logging.getLogger(__name__)

#: A post has 256 KiB of lines, or one line of up to `MAX_RECORD` bytes; JSON may double each byte.
BODY_LIMIT = 2 * protocol.MAX_RECORD + 1024 * 1024
#: Maximum size of all large bodies that are being received, in bytes.
ROOM_BYTES = 2 * BODY_LIMIT
#: Time limit for receiving a body, in seconds.
BODY_S = 60.0
#: Number of code archives kept in memory; maximum size of each in bytes.
_SMALL_FILES = 8
_SMALL_FILE_BYTES = 64 * 1024
#: Seconds between two heartbeats of a runner.
HEARTBEAT_S = 5

#: Requests by `outcome`, since the process started.
answered: Counter[str] = Counter()

_PATH = re.compile(r"/trial/v1/([^/]+)/([^/]+)/([^/]+)/([^/]+)")
_ATTEMPT_PATH = re.compile(r"/trial/v1/(\w{1,64}/\w{1,64}/\d{1,9})/\w+", re.ASCII)
_REQUEST_NAME = re.compile(rb"[A-Za-z0-9-]{1,64}")
_HARDENED = [(name.lower().encode(), value.encode()) for name, value in HARDENING.items()]
#: In the order of `RunnerIdentity`; a malformed id is answered like an unknown one.
_IDS = (EXPERIMENT_ID, TRIAL_ID, ATTEMPT)

#: Statuses with their own outcome.
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
    """The outcome of a request with this status, one of `OUTCOMES`."""
    if status < 400:
        return "taken"
    return _OUTCOMES.get(status) or ("refused" if status < 500 else "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int = 200
    body: bytes = b""
    #: In addition to the headers of every answer.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    headers: Mapping[str, str]


class _Refused(Exception):
    """An error that is not a domain error."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> _Answer:
    return _Answer(
        status=status,
        body=_encode(content).encode("utf-8", "surrogatepass"),
        headers={"content-type": "application/json", **(headers or {})},
    )


Take = Callable[[AttemptReports, Json], Awaitable[Json]]
Get = Callable[[RunnerIdentity], Awaitable[_Answer | _File]]


class TrialListener:
    """The ASGI application, with its limits of bodies.

    It uses no framework: most requests to the daemon arrive here, and the layers would cost more than handling a post.
    """

    def __init__(self, reports: RunnerReports) -> None:
        self._reports = reports
        self._memory = BodyMemory(ROOM_BYTES)
        routes = _Routes(reports)
        self.gets: dict[str, Get] = {
            "parameters": routes.parameters,
            "code": routes.code,
            "outboxes": routes.outboxes,
        }
        self.posts: dict[str, Callable[[RunnerIdentity, Json], Awaitable[Json]]] = {
            "version": routes.version,
            protocol.TOGETHER: routes.together,
            **{name: routes.alone(name) for name in routes.takes},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        try:
            answer = await self._answer(scope, headers, receive)
        except ClientDisconnect:
            return log.debug("a runner disconnected during %s", scope["path"])
        except _Refused as refused:
            answer = _json({"error": str(refused)}, refused.status, refused.headers)
        except BodyTooLarge as error:
            answer = _json({"error": error.detail}, error.status_code)
        except NniManagerError as error:
            again = {"Retry-After": "1"} if isinstance(error, TooBusy) else {}
            answer = _json({"error": str(error)}, _status(error), again)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"], extra={"action": "barrier"})
            answer = _json({"error": FAULT}, 500)
        await self._send(answer, scope, headers, receive, send)

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> _Answer | _File:
        found = _PATH.fullmatch(scope["path"])
        name = found[4] if found else ""
        is_get = scope["method"] in ("GET", "HEAD")
        if found is None or (name not in self.gets and name not in self.posts):
            raise _Refused(404, "unknown route of trial runners")
        if name not in (self.gets if is_get else self.posts) or not (is_get or scope["method"] == "POST"):
            raise _Refused(405, f"{scope['method']} is not possible here")
        runner = self._authenticated(found.group(1, 2, 3), headers)
        admit(scope, runner.job_name)
        if is_get:
            return await self.gets[name](runner)
        with self._memory.body(runner.job_name) as body:
            return _json(await self.posts[name](runner, await _body(headers, receive, body)))

    async def _send(
        self, answer: _Answer | _File, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        own = [*_signature(self._reports, scope["path"], headers), *_HARDENED]
        if isinstance(answer, _File):
            answered["taken"] += 1
            response = FileResponse(answer.path, media_type="application/gzip", headers=dict(answer.headers))
            response.raw_headers += own
            return await response(scope, receive, send)
        answered[outcome(answer.status)] += 1
        own += [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        if answer.status != 204:
            own.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": own})
        await send({"type": "http.response.body", "body": answer.body})

    def _authenticated(self, ids: tuple[str | Any, ...], headers: Mapping[bytes, bytes]) -> RunnerIdentity:
        """The attempt in the path, with its token checked. Raises _Refused."""
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _Refused(401, "send the attempt's token as `Authorization: Bearer`", {"WWW-Authenticate": "Bearer"})
        if all(form.fullmatch(id_) for form, id_ in zip(_IDS, ids, strict=True)):
            container = headers.get(_CONTAINER, b"").decode("latin-1")
            runner = RunnerIdentity(
                experiment_id=ids[0],
                trial_id=ids[1],
                attempt=int(ids[2]),
                container=container if CONTAINER.fullmatch(container) else "",
            )
            if self._reports.tokens.is_token(runner.job_name, token.strip()):
                return runner
        raise _Refused(403, "this token belongs to another attempt")


_CONTAINER = protocol.CONTAINER_HEADER.lower().encode()
_REQUEST = protocol.REQUEST_HEADER.lower().encode()
_ANSWER = protocol.ANSWER_HEADER.lower().encode()


def _signature(reports: RunnerReports, path: str, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Headers that sign an answer for this attempt and request, because a proxy may answer itself or replay one."""
    attempt = _ATTEMPT_PATH.fullmatch(path)
    name = f"{reports.tokens.manager}/{attempt[1]}" if attempt else reports.tokens.manager
    request = headers.get(_REQUEST, b"")
    if attempt and _REQUEST_NAME.fullmatch(request):
        name += f"/{request.decode()}"
    return [(_ANSWER, name.encode()), (b"cache-control", b"no-store")]


class _Routes:
    def __init__(self, reports: RunnerReports) -> None:
        self._reports = reports
        self._small = _SmallFiles()
        #: Handlers of the posts that one request may combine.
        self.takes: dict[str, Take] = {
            "status": self._status,
            "metrics": self._metrics,
            "log": self._log,
            "heartbeat": self._heartbeat,
        }

    async def version(self, runner: RunnerIdentity, body: Json) -> Json:
        version, channel, outboxes = posts.registration(body)
        welcome = await self._reports.register(runner, version, channel, outboxes)
        code = await self._code_of(welcome) if body.get(protocol.INLINE_CODE) is True else {}
        return {
            "accepted": True,
            "managerVersion": self._reports.manager_version,
            "record": json.loads(welcome.record),
            "hasCode": welcome.archive is not None,
            "stored": welcome.stored,
            protocol.TOGETHER: True,
            "stop": welcome.must_stop,
            **code,
        }

    async def _code_of(self, welcome: Registration) -> Json:
        """The code for the answer to a registration, if it is small. The request for the code reports errors."""
        try:
            data = await self._small.data(await welcome.archive.path()) if welcome.archive is not None else b""
        except (NniManagerError, OSError):
            data = b""
        return {protocol.INLINE_CODE: base64.b64encode(data).decode()} if data else {}

    async def parameters(self, runner: RunnerIdentity) -> _Answer:
        body = (await self._reports.record(runner)).encode()
        return _Answer(body=body, headers={"content-type": "application/json"})

    async def code(self, runner: RunnerIdentity) -> _Answer | _File:
        path = await self._reports.code(runner)
        if path is None:
            return _Answer(status=204)
        headers = {"ETag": f'"{path.name.partition(".")[0]}"'}
        if data := await self._small.data(path):
            return _Answer(body=data, headers={**headers, "content-type": "application/gzip"})
        return _File(path=path, headers=headers)

    async def outboxes(self, runner: RunnerIdentity) -> _Answer:
        return _json(await self._reports.offsets(runner))

    def alone(self, name: str) -> Callable[[RunnerIdentity, Json], Awaitable[Json]]:
        """A route for a kind of post."""
        take = self.takes[name]

        async def taken(runner: RunnerIdentity, body: Json) -> Json:
            return await take(await self._reports.attempt(runner), body)

        return taken

    async def together(self, runner: RunnerIdentity, body: Json) -> Json:
        """Handle several posts in order, until one is not stored completely."""
        parts = posts.parts(body, self.takes)
        attempt, answers = await self._reports.attempt(runner), list[Json]()
        while len(answers) < len(parts):
            left = parts[len(answers) :]
            if posts.is_whole_end(left):
                answers += await _parts(self._last_results, attempt, *(part for _, part in left[:2]))
            else:
                answers += await _parts(self.takes[left[0][0]], attempt, left[0][1])
            if answers[-1]["status"] != 200 or not posts.is_whole(parts[len(answers) - 1][1], answers[-1]["body"]):
                break
        return {"answers": answers}

    async def _last_results(self, attempt: AttemptReports, results: Json, end: Json) -> tuple[Json, ...]:
        """Store the last results and the end in one commit."""
        outbox, start, end_at, lines = posts.stretch(results)
        try:
            word = posts.exit_report(end)
        except InvalidInput:  # the end is invalid; store the results anyway
            return (await self._metrics(attempt, results),)
        offset = await attempt.lines(outbox, start, end_at, lines, word)
        taken = {"offset": offset}
        return (taken, _orders(attempt, attempt.side.must_stop)) if offset >= end_at else (taken,)

    async def _status(self, attempt: AttemptReports, body: Json) -> Json:
        event = body.get("event")
        if event == "started":
            must_stop = attempt.started(*posts.started(body), self._reports.now_ms())
            return _orders(attempt, must_stop, everyS=HEARTBEAT_S)
        if event == "exited":
            return _orders(attempt, await attempt.exited(posts.exit_report(body)))
        raise InvalidInput("event: must be started or exited")

    async def _metrics(self, attempt: AttemptReports, body: Json) -> Json:
        return {"offset": await attempt.lines(*posts.stretch(body))}

    async def _log(self, attempt: AttemptReports, body: Json) -> Json:
        return {"offset": await attempt.write_log(*posts.piece(body))}

    async def _heartbeat(self, attempt: AttemptReports, body: Json) -> Json:
        return _orders(attempt, attempt.must_stop(), everyS=HEARTBEAT_S)


class _SmallFiles:
    """A cache of small code archives, which never change and which all trials of an experiment request."""

    def __init__(self) -> None:
        self._known: dict[Path, bytes] = {}

    async def data(self, path: Path) -> bytes:
        """The file's content, or empty if it is not small. Raises OSError."""
        if path not in self._known:
            while len(self._known) >= _SMALL_FILES:
                del self._known[next(iter(self._known))]
            self._known[path] = await asyncio.to_thread(_small, path)
        return self._known[path]


def _small(path: Path) -> bytes:
    """The content of a small file; empty for a larger one. Blocks."""
    return path.read_bytes() if path.stat().st_size <= _SMALL_FILE_BYTES else b""


def _orders(attempt: AttemptReports, must_stop: bool, **more: object) -> Json:
    return {"stop": must_stop, "graceS": attempt.grace_s, **more}


async def _parts(take: Callable[..., Awaitable[Json | tuple[Json, ...]]], *given: Any) -> list[Json]:
    """The answers to one or two posts of a request. An internal error (status 500) is raised for the whole request."""
    try:
        taken = await take(*given)
        return [{"status": 200, "body": body} for body in (taken if isinstance(taken, tuple) else (taken,))]
    except NniManagerError as error:
        again = {"retryAfterS": 1} if isinstance(error, TooBusy) else {}
        return [{"status": _status(error), "body": {"error": str(error)}, **again}]


async def _body(headers: Mapping[bytes, bytes], receive: Receive, body: Body) -> Json:
    """The parsed body. Raises BodyTooLarge, before reading, if the announced length is too large."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:16]) > BODY_LIMIT:
        raise BodyTooLarge(BODY_LIMIT)
    try:
        async with asyncio.timeout(BODY_S):
            return posts.parse(await _received(receive, body))
    except TimeoutError:
        raise _Refused(408, f"the body did not arrive within {BODY_S:g} s", {"Connection": "close"}) from None


async def _received(receive: Receive, body: Body) -> bytes:
    """The bytes of the body. Raises BodyTooLarge, TooBusy and ClientDisconnect."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        if size > BODY_LIMIT:
            raise BodyTooLarge(BODY_LIMIT)
        body.grow(len(piece))
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _status(error: Exception) -> int:
    """The HTTP status of an error; 410 for a finished attempt or a closed experiment."""
    if isinstance(error, Conflict):
        return 410
    return int(_STATUS.get(type(error)) or status_of(error))


_STATUS: dict[type[Exception], int] = {VersionRefused: 409, TooBusy: 429}
