"""Answers: a status and JSON, in the format of Alibaba's gateways."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}

    def answer(self, host: str) -> Answer:
        body = {"Code": self.code, "Message": self.message, "RequestId": request_id(), "HostId": host}
        return Answer(status=self.status, body=body, headers=self.headers)


def request_id() -> str:
    return str(uuid.uuid4()).upper()
