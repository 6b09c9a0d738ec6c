"""Answers of Azure: JSON documents, and errors in the formats of Resource Manager and blob storage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 200
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Any, status: int = 200, **headers: str) -> Answer:
        """`headers`: names with underscores for hyphens."""
        told = {"Content-Type": "application/json; charset=utf-8"}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status=status, data=json.dumps(body).encode(), headers=told)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Lost(Exception):
    """The answer never arrives, whether or not the request was carried out."""


def arm_error(status: int, code: str, message: str, *info: Mapping[str, Any], **headers: str) -> Refused:
    """The service's error document. `info`: content of ``additionalInfo``."""
    error = {"code": code, "message": message, "target": "", "details": [], "additionalInfo": list(info)}
    return Refused(Answer.of({"error": error}, status, **headers))


def user_error(message: str, *inner: str, status: int = 400) -> Refused:
    """An error of the workspace. `inner`: codes, nested in each other, which appear nowhere else."""
    told: dict[str, Any] | None = None
    for code in reversed(inner):
        told = {"code": code, "innerError": told}
    info = [
        {"type": "ComponentName", "info": {"value": "managementfrontend"}},
        {"type": "Environment", "info": {"value": "westeurope"}},
    ]
    if told:
        info.append({"type": "InnerError", "info": {"value": told}})
    return arm_error(status, "UserError", message, *info)


def blob_error(status: int, code: str, message: str) -> Answer:
    """An error of blob storage: XML, with the code also in a header."""
    text = (
        f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>'
    )
    return Answer(
        status=status, data=text.encode(), headers={"Content-Type": "application/xml", "x-ms-error-code": code}
    )
