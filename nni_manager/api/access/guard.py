"""The checks of every listener: size of bodies, host, origin, token or user."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nni_manager.api.access import login
from nni_manager.api.access.login import Role, Tokens
from nni_manager.api.access.sparing import FAULT, Sparing

#: Log lines that any client can cause.
_faults, _wrong_tokens = (Sparing(logging.getLogger(__name__)) for _ in range(2))


class BodyTooLarge(HTTPException):
    """Raised by `receive` while a body is read; each application answers it in its own format."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than the limit of {limit / 2**20:g} MB; send less")


class LimitedBody:
    """A `receive` that passes at most `limit` bytes of body; the server drops the rest unread."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._taken = 0

    async def receive(self) -> Message:
        """Raises BodyTooLarge."""
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._limit:
            raise BodyTooLarge(self._limit)
        return message


BODY_LIMIT = 8 * 1024 * 1024
#: Paths that need no token.
OPEN_PATHS = ("/healthz", "/readyz")
#: Values of Sec-Fetch-Site for requests of our own page or of the browser's user.
_OWN_SITES = ("same-origin", "none")
#: Security headers of every answer, refusals included.
HARDENING = {
    "X-Content-Type-Options": "nosniff",  # logs are shown as text, even if a trial wrote HTML
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
    # pages set their own policy; browsers show other answers as plain text
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
#: Key in a request's state: whether it may only read. Pages then omit their buttons.
READS_ONLY = "nni_reads_only"
#: GET shows a browser the login form, for another role; DELETE ends its session, or all sessions of the listener.
SESSION_PATH = "/api/v1/session"
_READING = ("GET", "HEAD", "OPTIONS")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """The guard around the whole application, in pure ASGI.

    `token`: required by TCP listeners; empty: none. `read_token`: alternative for requests that only read. `hosts`:
    accepted host names, in addition to loopback names, the address of the connection and this machine's name. With a
    token, every name is accepted, because a page of another site that points its name here (DNS rebinding) has no
    token. `users`: local users admitted while no token is set. `larger`: path prefix → limit of the body, in bytes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str = "",
        read_token: str = "",
        hosts: Collection[str] = (),
        larger: Mapping[str, int] = MappingProxyType({}),
        users: LocalUsers | None = None,
    ) -> None:
        self._app = app
        self._tokens = Tokens(token, read_token)
        self._users = users or LocalUsers()
        self._hosts = _LOOPBACK | {host.lower() for host in hosts} | {socket.gethostname().lower()}
        self._larger = larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = LimitedBody(receive, self._limit(scope))
        answer = await self._own_answer(scope, body)
        if answer is None:
            await self._app(scope, body.receive, _hardened(send))
        else:
            await answer(scope, body.receive, _hardened(send))

    async def _own_answer(self, scope: Scope, body: LimitedBody) -> Response | None:
        """A refusal, or the answer to the submitted form; None if the request may pass."""
        try:
            return self._refuse_length(scope) or (await self._checked(scope, body) if _needs_checks(scope) else None)
        except Exception:
            _faults.exception(f"{scope['method']} {scope['path']} failed")
            return _refusal(500, FAULT)

    async def _checked(self, scope: Scope, body: LimitedBody) -> Response | None:
        refused = await self._refuse(scope)
        if refused is None and self._tokens.is_set and login.is_sent(scope, Headers(scope=scope), SESSION_PATH):
            return await self._begin_session(scope, body)
        return refused

    def _refuse_length(self, scope: Scope) -> Response | None:
        """The refusal of a body with a Content-Length above the limit, or None."""
        length, limit = Headers(scope=scope).get("content-length", "0"), self._limit(scope)
        if length.isdecimal() and int(length) > limit:
            return _refusal(413, BodyTooLarge(limit).detail)
        return None

    def _limit(self, scope: Scope) -> int:
        larger = (limit for start, limit in self._larger.items() if scope["path"].startswith(start))
        return next(larger, BODY_LIMIT)

    async def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        refused = self._refuse_host(scope, headers) or _refuse_origin(scope["method"], headers)
        if refused is not None:
            return refused
        if self._tokens.is_set:
            return self._answer_listener(scope, headers)
        if not await self._users.lets_in(scope):
            return _refusal(403, refusal())
        admit(scope)
        return None

    def _refuse_host(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse unknown host names: another site may point its name at this machine (DNS rebinding)."""
        names = headers.getlist("host")
        if len(names) > 1:
            return _refusal(400, "the request names two hosts; send one Host header")
        if not names or self._tokens.is_set:
            return None
        name = _host(names[0])
        if name in self._hosts or name == scope["server"][0].lower():
            return None
        return _refusal(403, f"{name!r} is not a name of this daemon; use the address that it prints at the start")

    def _answer_listener(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer of a listener with a token; None if the request may pass."""
        if login.is_sent(scope, headers, SESSION_PATH):
            return None
        session = self._tokens.sessions.shown(headers, _cookie(scope))
        role = self._tokens.shown(headers) if session is None else self._tokens.sessions.role(session)
        if role is None:
            return self._log_in(scope, headers)
        admit(scope)
        if (scope["method"], scope["path"]) == ("DELETE", SESSION_PATH):
            return self._log_out(session, role, scope)
        if scope["path"] == SESSION_PATH and login.wants_page(scope, headers):
            return login.form(scope.get("root_path", "") + SESSION_PATH, "/", 200)
        return _refuse_change(scope, role) or (_refuse_unknown_page(scope, headers) if session else None)

    def _log_out(self, session: str | None, role: Role, scope: Scope) -> Response:
        """End the browser's session, or, for a request with a token, the listener's sessions of its role."""
        if session is None:
            self._tokens.sessions.end_all(role)
        else:
            self._tokens.sessions.end(session)
        response = Response(status_code=204)
        response.delete_cookie(_cookie(scope), secure=_is_secure(scope), httponly=True, samesite="strict")
        return response

    def _log_in(self, scope: Scope, headers: Headers) -> Response:
        found = self._tokens.login(scope)
        if found is not None:
            return self._session(scope, *found)
        if "authorization" in headers or b"token=" in scope["query_string"]:
            _note_wrong_token(scope)
        if login.wants_page(scope, headers):
            target = "/" if scope["path"] == SESSION_PATH else login.asked_for(scope)
            return login.form(scope.get("root_path", "") + SESSION_PATH, target)
        sentence = "this listener requires its token: send `Authorization: Bearer <token>`, or open ?token=<token>"
        return _refusal(401, sentence, {"WWW-Authenticate": "Bearer"})

    async def _begin_session(self, scope: Scope, body: LimitedBody) -> Response:
        shown, target = await login.sent(body.receive)
        if (role := self._tokens.role(shown)) is not None:
            return self._session(scope, target, role)
        _note_wrong_token(scope)
        return login.form(scope.get("root_path", "") + SESSION_PATH, target, is_wrong=True)

    def _session(self, scope: Scope, target: str, role: Role) -> Response:
        admit(scope)
        response = RedirectResponse(target, 303)
        name, value, is_secure = _cookie(scope), self._tokens.sessions.begin(role), _is_secure(scope)
        response.set_cookie(name, value, secure=is_secure, httponly=True, samesite="strict")
        return response


def _note_wrong_token(scope: Scope) -> None:
    client = scope.get("client")
    _wrong_tokens.warning(f"wrong token from {client[0] if client else 'a client without an address'}")


def _is_secure(scope: Scope) -> bool:
    """Whether the browser uses TLS, to this daemon or to a proxy.

    X-Forwarded-Proto is trusted: a false value only makes the sender's own browser send its cookie less often.
    """
    first = Headers(scope=scope).get("x-forwarded-proto", "").partition(",")[0]
    return scope.get("scheme") == "https" or first.strip().lower() == "https"


def _cookie(scope: Scope) -> str:
    """The name of the session cookie. It contains the port, because all ports of a host share cookies."""
    return f"nni_manager_{scope['server'][1]}"


def _needs_checks(scope: Scope) -> bool:
    """Whether the connection must be checked: all except the Unix socket."""
    server = scope.get("server")
    if server is None:
        scope["server"] = ("", 0)
        return True
    return server[1] is not None and scope["path"] not in OPEN_PATHS


def _refuse_change(scope: Scope, role: Role) -> Response | None:
    """Refuse a reader's change, and mark a reader's request."""
    if role is Role.FULL:
        return None
    if scope["method"] in _READING:
        scope["state"] = {**scope.get("state", {}), READS_ONLY: True}
        return None
    return _refusal(403, "this token may only read; for a change, use the daemon's `token`")


def _refuse_unknown_page(scope: Scope, headers: Headers) -> Response | None:
    """Refuse a change with a cookie but without its page: browsers name the page in one of two headers.

    The headers' values were checked before.
    """
    if scope["method"] in _READING or {"origin", "sec-fetch-site"} & set(headers.keys()):
        return None
    sentence = "a change with a session's cookie requires the header Origin; in a program, send the token instead"
    return _refusal(403, sentence)


def _refuse_origin(method: str, headers: Headers) -> Response | None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is None:
        return _refuse_site(method, headers)
    if host and origin.lower().partition("://")[2] == host.lower():
        return None
    return _refusal(
        403,
        f"requests of pages from {origin} are refused at {host or 'no host'}; use this daemon's own page, or"
        " configure its proxy to pass the header Host unchanged",
    )


def _refuse_site(method: str, headers: Headers) -> Response | None:
    """Refuse requests of other sites' pages by Sec-Fetch-Site, because browsers may omit Origin, as for images.

    Links to this daemon are allowed. Forms and frames, which could hide buttons, are not.
    """
    site, destination = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-dest", "")
    follows_link = headers.get("sec-fetch-mode") == "navigate" and destination == "document"
    if site in _OWN_SITES or (follows_link and method in ("GET", "HEAD")):
        return None
    return _refusal(
        403, "requests of other sites' pages are refused; use this daemon's own page, or follow a link to it"
    )


def _host(header: str) -> str:
    """The host of a header without port, brackets and final dot, in lower case."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].removesuffix(".")


def _hardened(send: Send) -> Send:
    async def hardened_send(message: Message) -> None:
        harden(message)
        await send(message)

    return hardened_send


def harden(message: Message) -> None:
    """Add the headers of `HARDENING` that an answer does not set."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in HARDENING.items():
            headers.setdefault(name, value)


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence}, status, headers)


#: Key of a function in a request's state.
ADMIT = "admit"


def admit(scope: Scope, client: str = "") -> None:
    """Mark the connection's client as admitted, so that it is kept when there are too many others.

    `client`: name of a trial runner's job; empty: of the service.
    """
    if (told := scope.get("state", {}).get(ADMIT)) is not None:
        told(client)


#: Key of the connection's `Peer` in a request's state.
PEER = "peer"
REFUSAL = (
    "without a token, this listener admits only {user} and root of this machine, and this connection may belong to"
    " another user. Start the daemon with --token-file or NNI_MANAGER_TOKEN, and send `Authorization: Bearer <token>`;"
    " or name the user that connects, such as a proxy's, in allowLocalUsers (--allow-local-users, `true`: all users)"
)


class Peer(Protocol):
    """The other end of a connection."""

    async def uid(self) -> int | None:
        """The user id of its process; None if it is on another machine or unknown."""


class LocalUsers:
    """The users of this machine that a listener without a token admits: the daemon's, root, and `allowed` ones.

    The check is necessary because every local user can connect to 127.0.0.1, and the commands of an experiment file run
    as the daemon's user. `allowed`: user ids; True: all users.
    """

    def __init__(self, allowed: bool | frozenset[int] = False) -> None:
        self._are_all_allowed = allowed is True
        self._allowed = {0, os.geteuid()} | (allowed if isinstance(allowed, frozenset) else set())

    async def lets_in(self, scope: Scope) -> bool:
        """Whether the request's connection belongs to an allowed user; False if the user is unknown."""
        if self._are_all_allowed:
            return True
        peer: Peer | None = scope.get("state", {}).get(PEER)
        return peer is not None and await peer.uid() in self._allowed


def refusal() -> str:
    """The error message for other users."""
    return REFUSAL.format(user=f"the user with id {os.geteuid()}")
