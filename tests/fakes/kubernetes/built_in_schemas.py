"""Structural schemas of the built-in kinds, read from the models of the official description.

The client library's models are generated from the API's OpenAPI description: they contain every field and its type.
"""

from __future__ import annotations

import functools
import re
from typing import Any

_LIST = re.compile(r"^list\[(.*)\]$")
_DICT = re.compile(r"^dict\(str, (.*)\)$")
_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "datetime": {"type": "string"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_QUANTITY = {"x-kubernetes-int-or-string": True}
#: Quantities may also be numbers, although the description calls them strings.
_QUANTITIES = {
    ("V1ResourceRequirements", "limits"),
    ("V1ResourceRequirements", "requests"),
    ("V1VolumeResourceRequirements", "limits"),
    ("V1VolumeResourceRequirements", "requests"),
    ("V1PersistentVolumeSpec", "capacity"),
    ("V1ResourceQuotaSpec", "hard"),
}
_FREE = {"V1JSONSchemaProps"}
_QUANTITY_FIELDS = {("V1EmptyDirVolumeSource", "size_limit"), ("V1ResourceFieldSelector", "divisor")}

_REQUIRED = {
    "V1Container": ["name"],
    "V1EnvVar": ["name"],
    "V1Volume": ["name"],
    "V1PodSpec": ["containers"],
    "V1VolumeMount": ["name", "mountPath"],
    "V1NFSVolumeSource": ["server", "path"],
    "V1AzureFileVolumeSource": ["secretName", "shareName"],
    "V1PersistentVolumeClaimVolumeSource": ["claimName"],
    "V1HostPathVolumeSource": ["path"],
    "V1ContainerPort": ["containerPort"],
    "V1Pod": ["spec"],
    "V1OwnerReference": ["apiVersion", "kind", "name", "uid"],
}


@functools.cache
def of_kind(kind: str) -> dict[str, Any] | None:
    """The schema of a kind; None: fields are not checked."""
    name = {"Event": "CoreV1Event"}.get(kind, f"V1{kind}")
    return None if kind in ("CustomResourceDefinition",) else _of_model(name)


@functools.cache
def _of_model(name: str) -> dict[str, Any]:
    from kubernetes_asyncio.client import models  # slow to import, and only needed once something is written

    if name in _FREE:
        return {"x-kubernetes-preserve-unknown-fields": True}
    model = getattr(models, name)
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if name in _REQUIRED:
        schema["required"] = _REQUIRED[name]
    for field, written in model.openapi_types.items():
        member = model.attribute_map[field]
        if (name, field) in _QUANTITIES:
            schema["properties"][member] = {"type": "object", "additionalProperties": _QUANTITY, "nullable": True}
        elif (name, field) in _QUANTITY_FIELDS:
            schema["properties"][member] = _QUANTITY
        else:
            schema["properties"][member] = {**_of_type(written), "nullable": True}
    return schema


def _of_type(written: str) -> dict[str, Any]:
    if found := _LIST.match(written):
        return {"type": "array", "items": _of_type(found[1])}
    if found := _DICT.match(written):
        return {"type": "object", "additionalProperties": _of_type(found[1])}
    return _PLAIN.get(written) or _of_model(written)
