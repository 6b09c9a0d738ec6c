"""The token of a listener: programs send it in a header; browsers send it once and get a session cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

#: Seconds for which an unused session lasts.
SESSION_S = 12 * 3600
#: Most sessions of a listener; a further one ends the least recently used.
_MOST_SESSIONS = 1000


class Token:
    """A token, compared in constant time."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.is_set = bool(token)
        self.sessions = Sessions()

    def is_shown(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.matches(shown.strip())

    def login(self, scope: Scope) -> str | None:
        """The path, without the token, to which a GET with the right ``?token=`` is redirected; None: no or a wrong
        token."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = dict(query).get("token", "")
        if scope["method"] != "GET" or not self.matches(shown):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would lead to another host
        return f"{path}?{rest}" if rest else path

    def matches(self, shown: str) -> bool:
        """Whether `shown` is the token."""
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)


class Sessions:
    """Sessions of browsers that sent the token. Each has a random name, which reveals nothing of the token, as browsers
    send the cookie to every port of the host. A session ends with the daemon, after `SESSION_S` unused, or at
    log-out."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: Name → time of its last use, in order of use.
        self._used_s: dict[str, float] = {}

    def begin(self) -> str:
        """Starts a session; returns its name."""
        name = secrets.token_urlsafe(32)
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

    def end(self, name: str) -> None:
        self._used_s.pop(name, None)

    def end_all(self) -> None:
        self._used_s.clear()

    def _use(self, name: str) -> None:
        self._used_s.pop(name, None)
        self._used_s[name] = self._clock_s()
