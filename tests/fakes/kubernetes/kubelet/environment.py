"""The environment of a container, from all its sources."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.fakes.kubernetes.kinds import CONFIG_MAPS, SECRETS
from tests.fakes.kubernetes.store import Object
from tests.fakes.kubernetes.verbs import Verbs

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.][-A-Za-z0-9_.]*)\)")


class NotConfigured(Exception):
    """A container refers to a missing object: CreateContainerConfigError."""


def expanded(text: str, known: dict[str, str]) -> str:
    """Replace known `$(NAME)`; `$$` becomes `$`."""

    def found(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return _REFERENCE.sub(found, text)


def declared(verbs: Verbs, pod: Object, container: Object) -> dict[str, str]:
    """Variables of `envFrom`, then of `env`."""
    namespace = pod["metadata"]["namespace"]
    result: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix") or ""
        for reference, kind in (("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS)):
            if reference in source:
                data = values(verbs, kind.key, namespace, source[reference])
                result.update({prefix + name: value.decode(errors="replace") for name, value in data.items()})
    for entry in container.get("env") or []:
        value = _value(verbs, pod, container, entry)
        if value is not None:
            result[entry["name"]] = expanded(value, result) if "valueFrom" not in entry else value
    return result


def _value(verbs: Verbs, pod: Object, container: Object, entry: Object) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return str(entry.get("value") or "")
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        part, _, name = source["resourceFieldRef"]["resource"].partition(".")
        return str(((container.get("resources") or {}).get(part) or {}).get(name, "0"))
    for reference, kind in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS)):
        if reference in source:
            held = values(verbs, kind.key, pod["metadata"]["namespace"], source[reference])
            key = source[reference]["key"]
            if key in held:
                return held[key].decode(errors="replace")
            if source[reference].get("optional"):
                return None
            raise NotConfigured(
                f"couldn't find key {key} in {kind.kind} {pod['metadata']['namespace']}/{source[reference]['name']}"
            )
    return ""


def field(pod: Object, path: str) -> str:
    """The downward API: `metadata.labels['x']`, `status.podIP` and the like."""
    if found := re.match(r"^metadata\.(labels|annotations)\['(.+)'\]$", path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def values(verbs: Verbs, key: str, namespace: str, reference: Object) -> dict[str, bytes]:
    """The entries of a config map or a secret."""
    name = reference.get("name") or reference.get("secretName") or ""
    found = verbs.store.get(key, (namespace, name))
    if found is None:
        if reference.get("optional"):
            return {}
        kind = "secret" if key == SECRETS.key else "configmap"
        raise NotConfigured(f'{kind} "{name}" not found')
    if key == SECRETS.key:
        return {entry: base64.b64decode(value or "") for entry, value in (found.get("data") or {}).items()}
    texts = {entry: value.encode() for entry, value in (found.get("data") or {}).items()}
    return {**texts, **{entry: base64.b64decode(v) for entry, v in (found.get("binaryData") or {}).items()}}
