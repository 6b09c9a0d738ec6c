"""`metadata.managedFields`, which every object of a real server has: half of what a watch sends."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def with_managed_fields(obj: Object) -> Object:
    """The object with an entry for its creator, and one for the writer of its status."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    spec = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "status", "metadata")}
    entries = [_entry(obj, "manager", {"metadata": _own(metadata), **spec})]
    if obj.get("status"):
        entries.append({**_entry(obj, "kubelet", {"status": obj["status"]}), "subresource": "status"})
    return {**obj, "metadata": {**metadata, "managedFields": entries}}


def _own(metadata: Object) -> Object:
    return {name: metadata[name] for name in ("labels", "annotations", "ownerReferences") if name in metadata}


def _entry(obj: Object, manager: str, written: Object) -> Object:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": obj["apiVersion"],
        "time": obj["metadata"].get("creationTimestamp"),
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(written),
    }


def _fields(value: object) -> Object:
    """The names in a value as `FieldsV1` writes them."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields(inner) for name, inner in value.items()}
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return {_key(one): {".": {}, **_fields(one)} for one in value}
    return {}


def _key(one: Object) -> str:
    """The key of an entry of a list."""
    name = next((name for name in ("name", "type", "mountPath", "uid") if name in one), "")
    return f'k:{{"{name}":"{one.get(name, "")}"}}'
