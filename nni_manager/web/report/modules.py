"""The scripts of a report: the page's own chart modules, as an import map of addresses that hold their text.

A page that is opened from a file may load no module beside it, so each is in the page, under its path below ``static``.
What asks the manager is replaced by what reads the report.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from functools import cache

from nni_manager.web.static_files import OWN

_BEGIN = "report/begin.js"
#: Module of the page → module of the report that stands in its place.
_REPLACED = {
    "live.js": "report/live.js",
    "state.js": "report/state.js",
    "charts/feed.js": "report/feed.js",
    "charts/opening.js": "report/opening.js",
    "charts/columns.js": "report/columns.js",
}
_IMPORT = re.compile(r"(?<=\bfrom )\"(\.{1,2}/[^\"]+)\"")
#: What modules are called in a report.
_PREFIX = "report:"

BEGIN = _PREFIX + _BEGIN


@cache
def import_map() -> str:
    """JSON of an import map: every module that the first one needs, by its path."""
    found: dict[str, str] = {}
    waiting = [_BEGIN]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        text = (OWN / path).read_text(encoding="utf-8")
        needed = {name: _resolved(path, name) for name in _IMPORT.findall(text)}
        for name, module in needed.items():
            text = text.replace(f'from "{name}"', f'from "{_PREFIX}{module}"')
        found[path] = text
        waiting += needed.values()
    return json.dumps({"imports": {_PREFIX + path: _address(text) for path, text in sorted(found.items())}})


def _resolved(importer: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))
    return _REPLACED.get(path, path)


def _address(text: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
