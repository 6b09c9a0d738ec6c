"""The page that documents the API, without a script: every call and model of its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NotFound
from nni_manager.web.rendering import context_of, render

Json = Mapping[str, Any]
_MODEL = "#/components/schemas/"


async def _page(request: Request) -> Response:
    describe = context_of(request).describe_api
    if describe is None:
        raise NotFound("this address does not describe the API; open /docs on the address of `nni-manager serve`")
    document = describe()
    schemas = document.get("components", {}).get("schemas", {})
    return render(request, "docs.html", info=document["info"], groups=groups(document), schemas=schemas, types=types)


#: Method, path and operation object of the document.
Call = tuple[str, str, Json]


def groups(document: Json) -> list[tuple[str, str, list[Call]]]:
    """(tag, description, calls) in the order of the document's tags."""
    by_tag: dict[str, list[Call]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append((method, path, operation))
    said = {tag["name"]: tag.get("description", "") for tag in document.get("tags", ())}
    names = [*(name for name in said if name in by_tag), *(name for name in by_tag if name not in said)]
    return [(name, said.get(name, ""), by_tag[name]) for name in names]


Words = list[tuple[str, str]]


def types(schema: Json) -> Words:
    """The type as texts, each with the name of its model; an empty name: not a model."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(_MODEL)
        return [(name, name)]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _joined(schema[key])
    if "enum" in schema or "const" in schema:
        return [(" | ".join(map(str, schema.get("enum") or [schema["const"]])), "")]
    if schema.get("type") == "array":
        return [("list of ", ""), *types(schema.get("items", {}))]
    if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
        return [("object with values ", ""), *types(values)]
    return [(_plain(schema.get("type", "any")), "")]


def _plain(kind: object) -> str:
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _joined(schemas: Sequence[Json]) -> Words:
    parts: Words = []
    for schema in schemas:
        parts += [*([(" or ", "")] if parts else []), *types(schema)]
    return parts


ROUTES = [Route("/docs", _page)]
