"""The token of a listener: shown in a header by programs; browsers show it once and get a session by cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

#: Seconds for which a session lasts that nobody uses.
SESSION_S = 12 * 3600
#: Sessions of one listener; the one that was used longest ago ends for another one.
_MOST_SESSIONS = 1000


class Token:
    """Compared in constant time."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.is_set = bool(token)
        self.sessions = Sessions()

    def is_shown(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.matches(shown.strip())

    def login(self, scope: Scope) -> str | None:
        """The path where a GET with the right ``?token=`` goes on, without it; None when it has none or a wrong one."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = dict(query).get("token", "")
        if scope["method"] != "GET" or not self.matches(shown):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would lead to another host
        return f"{path}?{rest}" if rest else path

    def matches(self, shown: str) -> bool:
        """Whether it is the token."""
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)


class Sessions:
    """Browsers that have shown the token, each by a random name that says nothing of it: a browser tells it to every
    port of this host. They end with the daemon, when nobody uses them, and when somebody ends them."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: Name → when it was last used, the latest last.
        self._used_s: dict[str, float] = {}

    def begin(self) -> str:
        """Answers the name of a new one."""
        name = secrets.token_urlsafe(32)
        self._use(name)
        while len(self._used_s) > _MOST_SESSIONS:
            self.end(next(iter(self._used_s)))
        return name

    def shown(self, headers: Headers, cookie: str) -> str | None:
        """The session that a request is of; None: none, or one that is over."""
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
