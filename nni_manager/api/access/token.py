"""The tokens of a listener: programs send one in a header; browsers send it once and get a session cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

#: Seconds for which an unused session lasts.
SESSION_S = 12 * 3600
#: Most sessions of a listener; a further one ends the least recently used.
_MOST_SESSIONS = 1000


class Role(StrEnum):
    """What a token or a session allows."""

    #: Everything.
    FULL = "full"
    #: Reading alone.
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A GET with a token in ``?token=``."""

    role: Role
    #: The path, without the token, to go to.
    target: str


class Tokens:
    """The tokens of a listener, compared in constant time. `read_token`: shows all and changes nothing; empty: none."""

    def __init__(self, token: str, read_token: str = "") -> None:
        self._tokens = ((Role.FULL, token.encode()), (Role.READER, read_token.encode()))
        self.is_set = bool(token)
        self.sessions = Sessions()

    def shown(self, headers: Headers) -> Role | None:
        """The role of the token in the Authorization header; None: no or a wrong token."""
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return self.role(shown.strip()) if scheme.lower() == "bearer" else None

    def login(self, scope: Scope) -> Login | None:
        """The login of a GET with a right ``?token=``; None: no or a wrong token."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        role = self.role(dict(query).get("token", "")) if scope["method"] == "GET" else None
        if role is None:
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would lead to another host
        return Login(role=role, target=f"{path}?{rest}" if rest else path)

    def role(self, shown: str) -> Role | None:
        """The role of a token; None: it is none of them."""
        given = shown.encode("utf-8", "surrogatepass")
        matching = [role for role, token in self._tokens if hmac.compare_digest(given, token) and token]
        return matching[0] if matching else None


class Sessions:
    """Sessions of browsers that sent the token. Each has a random name, which reveals nothing of the token, as browsers
    send the cookie to every port of the host. A session ends with the daemon, after `SESSION_S` unused, or at
    log-out."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: Name → time of its last use, in order of use.
        self._used_s: dict[str, float] = {}
        self._roles: dict[str, Role] = {}

    def begin(self, role: Role = Role.FULL) -> str:
        """Starts a session; returns its name."""
        name = secrets.token_urlsafe(32)
        self._roles[name] = role
        self._use(name)
        while len(self._used_s) > _MOST_SESSIONS:
            self.end(next(iter(self._used_s)))
        return name

    def shown(self, headers: Headers, cookie: str) -> str | None:
        """The name of the request's session; None: none, or it is over."""
        name: str = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        used_s = self._used_s.get(name)
        if used_s is None:
            return None
        if self._clock_s() - used_s > SESSION_S:
            self.end(name)
            return None
        self._use(name)
        return name

    def role(self, name: str) -> Role:
        """The role of a session that `shown` named."""
        return self._roles[name]

    def end(self, name: str) -> None:
        self._used_s.pop(name, None)
        self._roles.pop(name, None)

    def end_all(self, role: Role = Role.FULL) -> None:
        """Ends all sessions; as a reader, those of readers."""
        for name in [name for name, of in self._roles.items() if role in (Role.FULL, of)]:
            self.end(name)

    def _use(self, name: str) -> None:
        self._used_s.pop(name, None)
        self._used_s[name] = self._clock_s()
