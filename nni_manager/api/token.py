"""The token of a door: shown in a header by programs, in a cookie by browsers."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope


class Token:
    """Compared in constant time. The cookie holds a digest, so that nobody reads the token out of a browser."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.is_set = bool(token)
        self.cookie_value = hmac.digest(self._token, b"nni-manager cookie", "sha256").hex()

    def is_shown(self, headers: Headers, cookie: str) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._matches(shown.strip()):
            return True
        value = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        return hmac.compare_digest(value.encode(), self.cookie_value.encode())

    def login(self, scope: Scope) -> str | None:
        """Where a GET with the right ``?token=`` goes on, without it; None when it has none or a wrong one."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = dict(query).get("token", "")
        if scope["method"] != "GET" or not self._matches(shown):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would lead to another host
        return f"{path}?{rest}" if rest else path

    def _matches(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)
