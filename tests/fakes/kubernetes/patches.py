"""Partial changes of objects: merge patch, JSON patch, strategic merge patch, and apply."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.kubernetes import refusals

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = ("application/apply-patch+yaml", "application/apply-patch+cbor")

#: Lists of built-in objects with a member as the key of each element.
_MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "conditions": "type",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "secrets": "name",
    "containerStatuses": "name",
    "taints": "key",
}


def copied(value: Any) -> Any:
    """Copy a JSON value; faster than `deepcopy`."""
    if isinstance(value, dict):
        return {name: copied(member) for name, member in value.items()}
    if isinstance(value, list):
        return [copied(element) for element in value]
    return value


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def strategically_merged(target: Any, patch: Any) -> Any:
    """Merge lists with a merge key by element; supports `$patch: delete` and `replace`."""
    if not isinstance(patch, dict):
        return copied(patch)
    if patch.get("$patch") == "replace":
        return {name: copied(value) for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        elif isinstance(value, list) and name in _MERGED_BY and all(isinstance(each, dict) for each in value):
            result[name] = _merged_list(result.get(name) or [], value, _MERGED_BY[name])
        elif name == "finalizers" and isinstance(value, list):
            result[name] = [*result.get(name, []), *(each for each in value if each not in result.get(name, []))]
        else:
            result[name] = strategically_merged(result.get(name), value)
    return result


def _merged_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(target)
    for element in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == element.get(key)), None)
        if element.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategically_merged({}, element))
        else:
            result[at] = strategically_merged(result[at], element)
    return result


def json_patched(target: Any, operations: Any) -> Any:
    """RFC 6902."""
    if not isinstance(operations, list):
        raise refusals.bad_request("error decoding patch: json: cannot unmarshal object into Go value of type Patch")
    result = {"": copied(target)}
    for operation in operations:
        try:
            _operate(result, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            told = f"the server rejected our request due to an error in our request: {json.dumps(operation)}: {error}"
            raise refusals.Refused(422, "Invalid", told) from error
    return result[""]


def _operate(root: dict[str, Any], operation: dict[str, Any]) -> None:
    name, path = operation["op"], operation["path"]
    if name == "test":
        if _read(root, path) != operation.get("value"):
            raise ValueError(f"testing value {path} failed")
    elif name == "remove":
        _remove(root, path)
    elif name == "add":
        _add(root, path, copied(operation["value"]))
    elif name == "replace":
        _remove(root, path)
        _add(root, path, copied(operation["value"]))
    elif name in ("move", "copy"):
        value = copied(_read(root, operation["from"]))
        if name == "move":
            _remove(root, operation["from"])
        _add(root, path, value)
    else:
        raise ValueError(f"unexpected kind: {name}")


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"{path} does not start with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]


def _read(value: Any, path: str) -> Any:
    for step in _steps(path):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _remove(root: Any, path: str) -> None:
    *parents, last = _steps(path)
    parent = root
    for step in parents:
        parent = parent[int(step)] if isinstance(parent, list) else parent[step]
    del parent[int(last) if isinstance(parent, list) else last]


def _add(root: Any, path: str, value: Any) -> None:
    *parents, last = _steps(path)
    parent = root
    for step in parents:
        parent = parent[int(step)] if isinstance(parent, list) else parent[step]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    else:
        if int(last) > len(parent):
            raise IndexError(f"{path} is beyond the end")
        parent.insert(int(last), value)
