"""JSON answers for domain errors, invalid requests and unexpected exceptions."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nni_manager.api.access.sparing import FAULT
from nni_manager.api.schemas import daemon as schema
from nni_manager.domain import errors
from nni_manager.domain.errors import shortened, status_of


class AsciiJson(JSONResponse):
    """JSON in ASCII, because errors may repeat text that UTF-8 cannot encode."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


log = logging.getLogger(__name__)

_MEANINGS = {
    400: "The request is invalid; the message names the field.",
    404: "The experiment, trial or file does not exist.",
    409: "The state of the object does not allow this.",
    413: "The body is larger than 8 MB.",
    503: "The store or the platform is unavailable; nothing was changed. Try again later.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the API's description.

    Every route also gets 401, 403 and 500, and routes that refuse unknown query parameters get 400.
    """
    return {status: {"model": schema.Error, "description": _MEANINGS[status]} for status in statuses}


def install(api: FastAPI) -> None:
    """Register handlers that turn every exception of a route into an answer."""
    api.add_exception_handler(errors.NniManagerError, _on_domain_error)
    api.add_exception_handler(RequestValidationError, _on_validation_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_middleware(Barrier)


async def refuse_unknown_query(request: Request) -> None:
    """Refuse unknown query parameters, so that a misspelled filter does not appear to match everything.

    Exceptions: any parameter from Prometheus, and `token` in a browser's address. Raises InvalidInput.
    """
    path = request.scope["path"]
    if path.startswith("/api/v1/"):
        known = _query_names(request.scope["route"].dependant)
        unknown = sorted(set(request.query_params) - known - {"token"})
        if unknown:
            offered = f"; use {', '.join(sorted(known))}" if known else ""
            raise errors.InvalidInput(f"{unknown[0]}: unknown query parameter of {path}{offered}")


#: Dependency of all routes except those that check their query themselves.
KNOWN_QUERY = (Depends(refuse_unknown_query),)


def _query_names(dependant: Any) -> set[str]:
    names = {parameter.alias for parameter in dependant.query_params}
    return names.union(*map(_query_names, dependant.dependencies))


async def _on_domain_error(_: Request, error: Exception) -> AsciiJson:
    content: dict[str, Any] = {"error": str(error)}
    if isinstance(error, errors.ConfigInvalid):
        content["problems"] = [asdict(problem) for problem in error.problems]
        content["warnings"] = [asdict(warning) for warning in error.warnings]
    headers = {"Retry-After": "1"} if isinstance(error, errors.Ending) else {}
    return AsciiJson(content, status_of(error), headers)


async def _on_validation_error(_: Request, error: Exception) -> AsciiJson:
    assert isinstance(error, RequestValidationError)
    return AsciiJson({"error": shortened("; ".join(map(_sentence, error.errors())))}, HTTPStatus.BAD_REQUEST)


async def _on_http_error(request: Request, error: Exception) -> AsciiJson:
    assert isinstance(error, HTTPException)
    sentence = f"{sentence_of(request, error)}{_ADVICE.get(error.status_code, '')}"
    return AsciiJson({"error": shortened(sentence)}, error.status_code, headers=headers_of(request, error))


_ADVICE = {404: "; /api/v1/openapi.json lists all paths", 405: "; /api/v1/openapi.json lists the methods"}


def sentence_of(request: Request, error: HTTPException) -> str:
    """The message of an error, in place of the framework's."""
    sentences = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not possible at {request.url.path}",
    }
    return sentences.get(error.status_code, error.detail)


def headers_of(request: Request, error: HTTPException) -> dict[str, str]:
    """The headers of an error. `Allow` has the methods of all routes of the path; the framework names only one's."""
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
        headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    return headers


def _sentence(fault: Mapping[str, Any]) -> str:
    """The message of a validation error, without the value, which may be a secret."""
    if fault["type"] == "json_invalid":
        return f"the body is not JSON: {fault['ctx']['error']} at character {fault['loc'][-1]}"
    if fault["type"] == "missing" and fault["loc"] == ("body",):
        return "the body is missing; send JSON with content type application/json"
    if (wanted := _KINDS.get(fault["type"])) is not None and fault["loc"] == ("body",):
        is_unread = isinstance(fault["input"], bytes)  # which it is of any other content type
        return f"the body must be a JSON {wanted}{', with content type application/json' if is_unread else ''}"
    return f"{_place(fault['loc'])}: {fault['msg']}"


#: Type of an error → the required value.
_KINDS = {"model_attributes_type": "object", "model_type": "object", "dict_type": "object", "list_type": "list"}


def _place(steps: Sequence[str | int]) -> str:
    """An error's place: ``("query", "limit")`` → ``limit``, ``("body", 0, "parameter")`` → ``body[0].parameter``."""
    inner = list(steps[1:] if len(steps) > 1 and isinstance(steps[1], str) else steps)
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in inner).removeprefix(".")


class Barrier:
    """Middleware for unexpected exceptions: logs the traceback and answers with a message."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except ClientDisconnect:
            log.debug("a client disconnected during %s %s", scope["method"], scope["path"])
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"], extra={"action": "barrier"})
            if started:
                raise
            await AsciiJson({"error": FAULT}, HTTPStatus.INTERNAL_SERVER_ERROR)(scope, receive, send)
