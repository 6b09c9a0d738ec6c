"""What the services say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 200
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Any, status: int = 200, **headers: str) -> Answer:
        told = {"Content-Type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        return cls(status=status, data=json.dumps(body).encode(), headers=told)


class Refused(Exception):
    """A request that is answered with an error, as Azure Resource Manager writes them."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        body = {"error": {"code": code, "message": message, "target": "", "details": [], "additionalInfo": []}}
        self.answer = Answer.of(body, status, **headers)
