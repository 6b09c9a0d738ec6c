"""The login form for the token of a listener; programs get a refusal in JSON instead.

It uses no other file: style sheets need the token, too.
"""

from __future__ import annotations

import html
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope

#: Most bytes of a submitted form: enough for a token and a path.
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
  <p><small>It is the <code>token</code> that the daemon was started with: <code>--token-file</code>,
  <code>NNI_MANAGER_TOKEN</code> or <code>settings.yml</code>. With its <code>readToken</code> you see
  everything and change nothing.</small></p>
</main>
</body>
</html>
"""
#: Its own style, its own form, nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_WRONG = '<p role="alert"><strong>That is not the token.</strong></p>\n    '


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether to answer with HTML: browsers ask for it when a page is opened, programs do not."""
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
    """The target with a single leading slash: two slashes or a backslash would lead to another host."""
    parts = urlsplit(target.replace("\\", "/"))
    path = "/" + parts.path.lstrip("/")
    return f"{path}?{parts.query}" if parts.query else path
