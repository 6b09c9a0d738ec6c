"""The tokens of a listener. Programs send one in a header; browsers send it once and get a session cookie."""

from __future__ import annotations

import hmac
import html
import secrets
import time
from collections.abc import Callable
from enum import StrEnum
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope

#: Lifetime of an unused session, in seconds.
SESSION_S = 12 * 3600
#: Maximum number of sessions of a listener; another one ends the least recently used.
_MOST_SESSIONS = 1000


class Role(StrEnum):
    """What a token or a session allows."""

    #: Everything.
    FULL = "full"
    #: Reading only.
    READER = "reader"


class Tokens:
    """The tokens of a listener, compared in constant time. `read_token`: may only read; empty: none."""

    def __init__(self, token: str, read_token: str = "") -> None:
        self._tokens = ((Role.FULL, token.encode()), (Role.READER, read_token.encode()))
        self.is_set = bool(token)
        self.sessions = Sessions()

    def shown(self, headers: Headers) -> Role | None:
        """The role of the token in the Authorization header; None without a valid token."""
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return self.role(shown.strip()) if scheme.lower() == "bearer" else None

    def login(self, scope: Scope) -> tuple[str, Role] | None:
        """(path to go to, without the token; role) of a GET with a valid ``?token=``; else None."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        role = self.role(dict(query).get("token", "")) if scope["method"] == "GET" else None
        if role is None:
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # two slashes would lead to another host
        return f"{path}?{rest}" if rest else path, role

    def role(self, shown: str) -> Role | None:
        """The role of a token; None if it is invalid."""
        given = shown.encode("utf-8", "surrogatepass")
        matching = [role for role, token in self._tokens if hmac.compare_digest(given, token) and token]
        return matching[0] if matching else None


class Sessions:
    """Sessions of browsers that sent the token.

    Each has a random name, because browsers send the cookie to every port of the host. A session ends with the daemon,
    after `SESSION_S` without use, or at logout.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: Name → time of its last use, in order of use.
        self._used_s: dict[str, float] = {}
        self._roles: dict[str, Role] = {}

    def begin(self, role: Role = Role.FULL) -> str:
        """Start a session; return its name."""
        name = secrets.token_urlsafe(32)
        self._roles[name] = role
        self._use(name)
        while len(self._used_s) > _MOST_SESSIONS:
            self.end(next(iter(self._used_s)))
        return name

    def shown(self, headers: Headers, cookie: str) -> str | None:
        """The name of the request's session, or None if it has none or it is over."""
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
        """The role of a session from `shown`."""
        return self._roles[name]

    def end(self, name: str) -> None:
        self._used_s.pop(name, None)
        self._roles.pop(name, None)

    def end_all(self, role: Role = Role.FULL) -> None:
        """End all sessions; for a reader, only those of readers."""
        for name in [name for name, of in self._roles.items() if role in (Role.FULL, of)]:
            self.end(name)

    def _use(self, name: str) -> None:
        self._used_s.pop(name, None)
        self._used_s[name] = self._clock_s()


#: Maximum size of a submitted form, in bytes: enough for a token and a path.
_MOST_BYTES = 16 * 1024
_FORM_TYPE = "application/x-www-form-urlencoded"

_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Log in · nni_manager</title>
  <style>
    :root {{ --bg: #f6f7f9; --panel: #fff; --fg: #1b2430; --muted: #566170; --line: #d5dbe3; --accent: #1d5bbf;
      --on-accent: #fff; --bad: #a3231d; --bad-bg: #fce5e3; }}
    @media (prefers-color-scheme: dark) {{
      :root {{ --bg: #12161c; --panel: #1a2028; --fg: #e6eaf0; --muted: #a3adba; --line: #323b47; --accent: #82b1ff;
        --on-accent: #10151c; --bad: #ff9d95; --bad-bg: #43201e; }}
    }}
    * {{ box-sizing: border-box; }}
    body {{ margin: 0; background: var(--bg); color: var(--fg); font: 15px/1.5 system-ui, sans-serif; }}
    main {{ max-width: 25rem; margin: 14vh auto 0; padding: 1.5rem; background: var(--panel);
      border: 1px solid var(--line); border-radius: 8px; }}
    h1 {{ margin: 0 0 1rem; font-size: 1.25rem; }}
    label, input, button {{ display: block; width: 100%; font: inherit; }}
    label {{ font-weight: 600; }}
    input, button {{ margin-top: .4rem; padding: .5rem .65rem; border: 1px solid var(--line); border-radius: 6px;
      background: var(--bg); color: var(--fg); }}
    button {{ margin-top: 1rem; border-color: var(--accent); background: var(--accent); color: var(--on-accent);
      cursor: pointer; }}
    :focus-visible {{ outline: 3px solid var(--accent); outline-offset: 2px; }}
    small {{ color: var(--muted); }}
    p {{ margin: 1rem 0 0; }}
    [role=alert] {{ margin: 0 0 1rem; padding: .6rem .8rem; border-left: 4px solid var(--bad);
      background: var(--bad-bg); }}
    @media (max-width: 28rem) {{ main {{ margin: 0; min-height: 100vh; border: 0; border-radius: 0; }} }}
  </style>
</head>
<body>
<main>
  <h1>nni_manager</h1>
  <form method="post" action="{action}">
    {wrong}<label>Token of this daemon
      <input type="password" name="token" required autofocus autocomplete="current-password">
    </label>
    <input type="hidden" name="next" value="{target}">
    <button>Log in</button>
  </form>
  <p><small>Enter the daemon's <code>token</code>, from <code>--token-file</code>,
  <code>NNI_MANAGER_TOKEN</code> or <code>settings.yml</code>. With its <code>readToken</code>, you can see
  everything but change nothing.</small></p>
</main>
</body>
</html>
"""
#: Allows only the page's own style and form.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_WRONG = '<p role="alert"><strong>Wrong token.</strong></p>\n    '


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether to answer with HTML, which browsers request when a page is opened."""
    return scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", "")


def is_sent(scope: Scope, headers: Headers, path: str) -> bool:
    """Whether the request is the submitted form."""
    is_form = headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM_TYPE
    return scope["method"] == "POST" and scope["path"] == path and is_form


def form(action: str, target: str, status: int = 401, *, is_wrong: bool = False) -> HTMLResponse:
    """The page with the form. `target`: path of this daemon to go to after the login."""
    values = {"action": html.escape(action), "target": html.escape(target), "wrong": _WRONG if is_wrong else ""}
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    headers |= {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return HTMLResponse(_PAGE.format(**values), status, headers)


def asked_for(scope: Scope) -> str:
    """The path and query of a request, as `target` of the form."""
    query = scope["query_string"].decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


async def sent(receive: Receive) -> tuple[str, str]:
    """(token, target path) of a submitted form; a body above `_MOST_BYTES` counts as empty."""
    body = b""
    while len(body) <= _MOST_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    else:
        return "", "/"
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return fields.get("token", [""])[0], _on_this_host(fields.get("next", ["/"])[0])


def _on_this_host(target: str) -> str:
    """The target with a single leading slash, because two slashes or a backslash would lead to another host.

    An invalid address becomes ``/``.
    """
    try:
        parts = urlsplit(target.replace("\\", "/"))
    except ValueError:
        return "/"
    path = "/" + parts.path.lstrip("/")
    return f"{path}?{parts.query}" if parts.query else path
