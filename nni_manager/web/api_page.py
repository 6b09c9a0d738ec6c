"""The page that documents the API: every call and every model of its description (OpenAPI), without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NotFound
from nni_manager.web.rendering import context_of, render

Json = Mapping[str, Any]
_MODEL = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Type:
    """A part of a type in words; `model`: name of the model that it links to, or empty."""

    text: str
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter of a call, or a field of a model."""

    name: str
    types: Sequence[Type]
    required: bool
    description: str
    #: ``path`` or ``query``; empty for fields.
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A body that is sent, or an answer. `status`: empty for a body; `kind`: content type, empty: no body."""

    status: str = ""
    kind: str = ""
    types: Sequence[Type] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: Sequence[Field]
    bodies: Sequence[Content]
    answers: Sequence[Content]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The calls with the same tag."""

    name: str
    description: str
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    description: str
    types: Sequence[Type]
    fields: Sequence[Field]


async def _page(request: Request) -> Response:
    describe = context_of(request).describe_api
    if describe is None:
        raise NotFound("the API is not described here; the service of `nni-manager serve` has the page /docs")
    document = describe()
    return render(request, "docs.html", info=document["info"], groups=groups(document), models=models(document))


def groups(document: Json) -> list[Group]:
    """All calls by tag, in the document's order of tags; of calls without a tag the group is ``other``."""
    by_tag: dict[str, list[Call]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_call(method, path, operation))
    said = {tag["name"]: tag.get("description", "") for tag in document.get("tags", ())}
    names = [*(name for name in said if name in by_tag), *(name for name in by_tag if name not in said)]
    return [Group(name=name, description=said.get(name, ""), calls=by_tag[name]) for name in names]


def models(document: Json) -> list[Model]:
    """All models, by name."""
    schemas = document.get("components", {}).get("schemas", {})
    return [_model(name, schemas[name]) for name in sorted(schemas)]


def _call(method: str, path: str, operation: Json) -> Call:
    return Call(
        id=operation.get("operationId") or f"{method}-{path}",
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        description=operation.get("description", ""),
        parameters=[
            Field(
                name=one["name"],
                types=_types(one.get("schema", {})),
                required=one.get("required", False),
                description=one.get("description", ""),
                place=one["in"],
            )
            for one in operation.get("parameters", ())
        ],
        bodies=list(_contents(operation.get("requestBody", {}))),
        answers=[one for status, said in sorted(operation["responses"].items()) for one in _answers(status, said)],
    )


def _answers(status: str, said: Json) -> Iterator[Content]:
    """The contents of an answer; one without a body has a line as well."""
    found = list(_contents(said, status))
    yield from found or [Content(status=status, description=said.get("description", ""))]


def _contents(said: Json, status: str = "") -> Iterator[Content]:
    for kind, content in said.get("content", {}).items():
        types = _types(content.get("schema", {}))
        yield Content(status=status, kind=kind, types=types, description=said.get("description", ""))


def _model(name: str, schema: Json) -> Model:
    required = schema.get("required", ())
    fields = [
        Field(name=key, types=_types(one), required=key in required, description=one.get("description", ""))
        for key, one in schema.get("properties", {}).items()
    ]
    return Model(
        name=name, description=schema.get("description", ""), types=() if fields else _types(schema), fields=fields
    )


def _types(schema: Json) -> list[Type]:
    """A type in words, as parts: ``list of`` and a link to ``Trial``, say."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(_MODEL)
        return [Type(name, name)]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _joined(schema[key])
    if "enum" in schema or "const" in schema:
        return [Type(" | ".join(map(str, schema.get("enum") or [schema["const"]])))]
    if schema.get("type") == "array":
        return [Type("list of "), *_types(schema.get("items", {}))]
    if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
        return [Type("object with values "), *_types(values)]
    return [Type(_plain(schema.get("type", "any")))]


def _plain(kind: object) -> str:
    """The type's name; 3.1 documents may have a list of names."""
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _joined(schemas: Sequence[Json]) -> list[Type]:
    parts: list[Type] = []
    for schema in schemas:
        parts += [*([Type(" or ")] if parts else []), *_types(schema)]
    return parts


ROUTES = [Route("/docs", _page)]
