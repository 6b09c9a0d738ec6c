"""Structural schemas: prune or name unknown fields, check the others, fill in defaults."""

from __future__ import annotations

import re
from typing import Any

Cause = tuple[str, str, str]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"


def pruned(schema: dict[str, Any], value: Any, path: str, unknown: list[str]) -> Any:
    """`value` without fields that `schema` lacks; their paths are added to `unknown`."""
    if isinstance(value, list):
        items = schema.get("items")
        return [pruned(items, each, f"{path}[{at}]", unknown) for at, each in enumerate(value)] if items else value
    if not isinstance(value, dict) or schema.get("x-kubernetes-embedded-resource"):
        return value
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    result = {}
    for name, member in value.items():
        at = f"{path}.{name}" if path else name
        if properties and name in properties:
            result[name] = pruned(properties[name], member, at, unknown)
        elif isinstance(others, dict):
            result[name] = pruned(others, member, at, unknown)
        elif schema.get(_PRESERVE) or others is True:
            result[name] = member
        else:
            unknown.append(at)
    return result


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], each) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, member in (schema.get("properties") or {}).items():
        if name not in result and "default" in member:
            result[name] = member["default"]
        if result.get(name) is not None:
            result[name] = with_defaults(member, result[name])
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        known = schema.get("properties") or {}
        result = {name: v if name in known else with_defaults(others, v) for name, v in result.items()}
    return result


def causes(schema: dict[str, Any], value: Any, path: str = "") -> list[Cause]:
    """Violations, with the server's messages."""
    if value is None:
        return [] if schema.get("nullable") or "type" not in schema else [_type_cause(schema, value, path)]
    if not _typed(schema, value):
        return [_type_cause(schema, value, path)]
    return [*_own_causes(schema, value, path), *_member_causes(schema, value, path)]


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _typed(schema: dict[str, Any], value: Any) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted is None:
        return True
    if isinstance(value, bool) and wanted != "boolean":
        return False
    return isinstance(value, _TYPES[wanted])


def _type_cause(schema: dict[str, Any], value: Any, path: str) -> Cause:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    found = names.get(type(value), "null")
    wanted = "integer,string" if schema.get(_INT_OR_STRING) else schema.get("type")
    told = f'Invalid value: "{found}": {path or "<nil>"} in body must be of type {wanted}: "{found}"'
    return path or "<nil>", "FieldValueTypeInvalid", told


def _own_causes(schema: dict[str, Any], value: Any, path: str) -> list[Cause]:
    found: list[Cause] = []

    def wrong(text: str) -> None:
        shown = f'"{value}"' if isinstance(value, str) else value
        found.append((path, "FieldValueInvalid", f"Invalid value: {shown}: {path} in body {text}"))

    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(f'"{each}"' for each in schema["enum"])
        told = f'Unsupported value: "{value}": supported values: {supported}'
        found.append((path, "FieldValueNotSupported", told))
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            wrong(f"should match '{schema['pattern']}'")
        if len(value) > schema.get("maxLength", len(value)):
            found.append((path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes"))
        if len(value) < schema.get("minLength", 0):
            wrong(f"should be at least {schema['minLength']} chars long")
    elif isinstance(value, int | float):
        if value < schema.get("minimum", value):
            wrong(f"should be greater than or equal to {schema['minimum']}")
        if value > schema.get("maximum", value):
            wrong(f"should be less than or equal to {schema['maximum']}")
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            wrong(f"should have at least {schema['minItems']} items")
        if len(value) > schema.get("maxItems", len(value)):
            wrong(f"should have at most {schema['maxItems']} items")
    return found


def _member_causes(schema: dict[str, Any], value: Any, path: str) -> list[Cause]:
    found: list[Cause] = []
    if isinstance(value, list):
        for at, each in enumerate(value):
            found += causes(schema.get("items", {}), each, f"{path}[{at}]")
    elif isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if name not in value:
                found.append((f"{path}.{name}" if path else name, "FieldValueRequired", "Required value"))
        for name, member in value.items():
            at = f"{path}.{name}" if path else name
            if name in properties:
                found += causes(properties[name], member, at)
            elif isinstance(others, dict):
                found += causes(others, member, at)
    return found
