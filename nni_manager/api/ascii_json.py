"""Answers that can spell whatever text there is: half of a character, for which UTF-8 has no bytes, is an escape."""

from __future__ import annotations

import json

from starlette.responses import JSONResponse


class AsciiJson(JSONResponse):
    """Refusals may repeat what was sent."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
