"""The API's description: FastAPI's, with our own refusals in place of its."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from nni_manager.api.guard import OPEN_PATHS

DESCRIPTION = """
One daemon, many experiments. JSON in camelCase; times are milliseconds since the epoch. Every refusal is
`{"error": "<sentence>"}`. Through the control socket no login is needed; a TCP door may want its token as
`Authorization: Bearer <token>`.
"""
TAGS = [
    {"name": "experiments", "description": "Tuning tasks, each made from one experiment file."},
    {"name": "trials", "description": "Sets of parameters under evaluation."},
    {"name": "results", "description": "What trials report."},
    {"name": "logs", "description": "Files that trials and the manager write."},
    {"name": "platforms", "description": "Training services as such, whoever uses them."},
    {"name": "daemon", "description": "The process behind this API."},
]
_EVERYWHERE = {
    "401": "This door wants a token, or another one.",
    "403": "The Host or Origin header names another site.",
    "500": "A fault in the manager; its log has the details.",
}
_REPLACED = ("HTTPValidationError", "ValidationError")


def install(api: FastAPI) -> None:
    """`api.openapi()` answers our description, made on first use."""

    def openapi() -> dict[str, Any]:
        if not api.openapi_schema:
            api.openapi_schema = _describe(api)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # the documented way


def _describe(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title, version=api.version, description=DESCRIPTION.strip(), routes=api.routes, tags=TAGS
    )
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _state_refusals(operation["responses"], is_probe=path in OPEN_PATHS)
    for name in _REPLACED:
        document["components"]["schemas"].pop(name, None)
    return document


def _state_refusals(responses: dict[str, Any], *, is_probe: bool) -> None:
    responses.pop("422", None)  # FastAPI's own; ours is 400
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, meaning in _EVERYWHERE.items():
        if not is_probe or status == "500":
            responses[status] = {"description": meaning}
    for status, response in responses.items():
        if status >= "400":
            response["content"] = schema  # whatever the route answers when it succeeds
