"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.fakes.kubernetes import refusals

Matches = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!=(),]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=(),]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=(),]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s!=(),]+)\s*$")


def labels(selector: str) -> Matches:
    """Whether labels match all requirements of a `labelSelector`."""
    requirements = [_requirement(part) for part in _split(selector) if part.strip()]
    return lambda obj: all(holds(obj["metadata"].get("labels") or {}) for holds in requirements)


def _split(selector: str) -> list[str]:
    """Split at commas outside brackets."""
    return re.split(r",(?![^(]*\))", selector)


def _requirement(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(part):
        values = {value.strip() for value in found["values"].split(",")}
        key, within = found["key"], found["op"] == "in"
        return lambda has: (has.get(key) in values) if within else (has.get(key) not in values)
    if found := _EQUAL.match(part):
        key, value, equal = found["key"], found["value"], found["op"] != "!="
        return lambda has: (has.get(key) == value) if equal else (has.get(key) != value)
    if found := _EXISTS.match(part):
        key, there = found["key"], not found["not"]
        return lambda has: (key in has) == there
    raise refusals.bad_request(f"unable to parse requirement: found {part!r}, expected: an operator or a key")


def fields(selector: str, key: str) -> Matches:
    """Whether an object matches a `fieldSelector`; each resource supports few fields."""
    known = {"metadata.name", "metadata.namespace"} | _FIELDS.get(key, set())
    wanted: list[tuple[str, str, bool]] = []
    for part in _split(selector):
        if not part.strip():
            continue
        found = _EQUAL.match(part)
        if not found or found["key"] not in known:
            raise refusals.bad_request(f"field label not supported: {part.split('=')[0].strip('!')}")
        wanted.append((found["key"], found["value"], found["op"] != "!="))
    return lambda obj: all((_value(obj, path) == value) == equal for path, value, equal in wanted)


_FIELDS = {
    "pods": {"spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP", "spec.serviceAccountName"},
    "events": {
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "type",
        "source",
        "reportingComponent",
    },
    "secrets": {"type"},
    "namespaces": {"status.phase"},
}


def _value(obj: dict[str, Any], path: str) -> str:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)
