"""Error answers of the API → domain errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from nni_manager.domain.errors import (
    ConfigInvalid,
    Conflict,
    InvalidInput,
    NniManagerError,
    NotFound,
    Problem,
    StoreUnavailable,
)


class Unreachable(NniManagerError):
    """The address does not answer, or the connection broke during an answer."""


class AccessRefused(NniManagerError):
    """The listener refuses access."""


class TokenRefused(AccessRefused):
    """The listener requires a token; the request had none or a wrong one."""


_ERRORS: dict[int, type[NniManagerError]] = {
    HTTPStatus.BAD_REQUEST: InvalidInput,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidInput,
    HTTPStatus.UNAUTHORIZED: TokenRefused,
    HTTPStatus.FORBIDDEN: AccessRefused,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.SERVICE_UNAVAILABLE: StoreUnavailable,
}


def from_answer(status: int, body: bytes) -> NniManagerError:
    """The error for an answer; its text is the answer's sentence."""
    answer = _object(body)
    if answer.get("problems"):
        return ConfigInvalid(*([_problem(one) for one in answer.get(name) or []] for name in ("problems", "warnings")))
    sentence = answer.get("error") or f"the daemon answered with status {status} and no explanation; see its log"
    return _ERRORS.get(status, NniManagerError)(str(sentence))


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _problem(entry: dict[str, Any]) -> Problem:
    return Problem(
        message=entry["message"], field=entry.get("field", ""), file=entry.get("file", ""), line=entry.get("line", 0)
    )
