"""Validation of objects before they are stored: schema, name, and rules of the kind."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from tests.fakes.kubernetes import built_in_schemas, refusals, schemas
from tests.fakes.kubernetes.jobs import rules
from tests.fakes.kubernetes.kinds import JOBS, Kind
from tests.fakes.kubernetes.store import Object

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_NAME = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_QUANTITY = re.compile(r"^[+-]?(\d+|\d+\.\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$")


def shaped(kind: Kind, obj: Object, refuse_unknown: bool) -> tuple[Object, list[str]]:
    """The object without unknown fields, and the names of these."""
    schema = kind.schema or built_in_schemas.of_kind(kind.kind)
    if schema is None:
        return obj, []
    unknown: list[str] = []
    known = {"apiVersion", "kind", "metadata"}
    rest = {name: value for name, value in obj.items() if name not in known}
    rest = schemas.pruned(schema, rest, "", unknown)
    meta_schema = built_in_schemas._of_model("V1ObjectMeta")
    metadata = schemas.pruned(meta_schema, obj["metadata"], "metadata", unknown)
    shaped_object = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, **rest}
    wrong = [*schemas.causes(meta_schema, metadata, "metadata"), *schemas.causes(schema, _body(kind, shaped_object))]
    name = metadata.get("name", "")
    if wrong and not kind.custom and any(cause[1] == "FieldValueTypeInvalid" for cause in wrong):
        field, _, text = next(cause for cause in wrong if cause[1] == "FieldValueTypeInvalid")
        told = f"{kind.kind} in version {kind.version!r} cannot be handled as a {kind.kind}: {field}: {text}"
        raise refusals.bad_request(told)
    if refuse_unknown:
        wrong += [(path, "FieldValueInvalid", f"Invalid value: unknown field {path!r}") for path in unknown]
    if wrong:
        raise refusals.invalid(kind.kind, kind.group, name, wrong)
    return (schemas.with_defaults(kind.schema, shaped_object) if kind.schema else shaped_object), unknown


def _body(kind: Kind, obj: Object) -> Object:
    """Validate the name by a custom resource's schema; other metadata is already checked."""
    hidden = {"apiVersion", "kind", "metadata"}
    body = {name: value for name, value in obj.items() if name not in hidden}
    if kind.custom:
        body["metadata"] = {name: obj["metadata"][name] for name in ("name",) if name in obj["metadata"]}
    return body


def require_valid(kind: Kind, obj: Object) -> None:
    """Rules that are not part of schemas."""
    wrong = [*_names(obj), *_labels(obj)]
    if kind.key == "pods":
        wrong += _pod(obj["spec"], "spec")
    elif kind.key == JOBS.key:
        wrong += [*rules.faults(obj), *_pod(obj["spec"]["template"]["spec"], "spec.template.spec")]
    elif kind.key == "secrets":
        wrong += _secret(obj)
    elif kind.kind in ("TFJob", "PyTorchJob"):
        wrong += _training_job(kind, obj)
    if wrong:
        raise refusals.invalid(kind.kind, kind.group, obj["metadata"].get("name", ""), wrong)


def _names(obj: Object) -> list[schemas.Cause]:
    name = obj["metadata"].get("name", "")
    if not isinstance(name, str) or not name:
        return [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    if len(name) > 253 or (not _SUBDOMAIN.match(name) and not obj["apiVersion"].startswith("rbac")):
        told = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
            "characters, '-' or '.', and must start and end with an alphanumeric character"
        )
        return [("metadata.name", "FieldValueInvalid", told)]
    return []


def _labels(obj: Object) -> list[schemas.Cause]:
    wrong: list[schemas.Cause] = []
    metadata = obj["metadata"]
    for name, value in (metadata.get("labels") or {}).items():
        if len(value) > 63:
            told = f'Invalid value: "{value}": must be no more than 63 bytes'
            wrong.append(("metadata.labels", "FieldValueInvalid", told))
        elif not _LABEL_VALUE.match(value):
            told = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric characters'
            )
            wrong.append(("metadata.labels", "FieldValueInvalid", told))
        wrong += _qualified("metadata.labels", name)
    for name in metadata.get("annotations") or {}:
        wrong += _qualified("metadata.annotations", name)
    return wrong


def _qualified(field: str, name: str) -> list[schemas.Cause]:
    prefix, _, last = name.rpartition("/")
    if last and len(last) <= 63 and _LABEL_NAME.match(last) and (not prefix or _SUBDOMAIN.match(prefix)):
        return []
    told = f"Invalid value: \"{name}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
    return [(field, "FieldValueInvalid", told)]


def _pod(spec: dict[str, Any], path: str) -> list[schemas.Cause]:
    wrong: list[schemas.Cause] = []
    volumes = {volume["name"] for volume in spec.get("volumes") or []}
    if not spec.get("containers"):
        wrong.append((f"{path}.containers", "FieldValueRequired", "Required value"))
    policy = spec.get("restartPolicy", "Always")
    if policy not in ("Always", "OnFailure", "Never"):
        told = f'Unsupported value: "{policy}": supported values: "Always", "OnFailure", "Never"'
        wrong.append((f"{path}.restartPolicy", "FieldValueNotSupported", told))
    seen: set[str] = set()
    for list_name in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(list_name) or []):
            wrong += _container(container, f"{path}.{list_name}[{at}]", volumes, seen)
    for at, volume in enumerate(spec.get("volumes") or []):
        kinds = [name for name in volume if name != "name"]
        if len(kinds) > 1:
            told = "Forbidden: may not specify more than 1 volume type"
            wrong.append((f"{path}.volumes[{at}].{kinds[1]}", "FieldValueForbidden", told))
        if not _LABEL_NAME.match(volume["name"]) or volume["name"] != volume["name"].lower():
            told = (
                f'Invalid value: "{volume["name"]}": a lowercase RFC 1123 label must consist of lower case characters'
            )
            wrong.append((f"{path}.volumes[{at}].name", "FieldValueInvalid", told))
    return wrong


def _container(container: Object, path: str, volumes: set[str], seen: set[str]) -> list[schemas.Cause]:
    wrong: list[schemas.Cause] = []
    name = container["name"]
    if len(name) > 63 or not re.match(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", name):
        told = f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of lower case alphanumeric characters'
        wrong.append((f"{path}.name", "FieldValueInvalid", told))
    if name in seen:
        wrong.append((f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
    seen.add(name)
    if not container.get("image"):
        wrong.append((f"{path}.image", "FieldValueRequired", "Required value"))
    for at, mount in enumerate(container.get("volumeMounts") or []):
        if mount["name"] not in volumes and not mount["name"].startswith("kube-api-access"):
            wrong.append((f"{path}.volumeMounts[{at}].name", "FieldValueNotFound", f'Not found: "{mount["name"]}"'))
    paths = [mount["mountPath"] for mount in container.get("volumeMounts") or []]
    for at, mount_path in enumerate(paths):
        if mount_path in paths[:at]:
            told = f'Invalid value: "{mount_path}": must be unique'
            wrong.append((f"{path}.volumeMounts[{at}].mountPath", "FieldValueInvalid", told))
    return wrong + _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Object, path: str) -> list[schemas.Cause]:
    wrong: list[schemas.Cause] = []
    for part in ("limits", "requests"):
        for name, value in (resources.get(part) or {}).items():
            if not _QUANTITY.match(str(value)):
                told = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                raise refusals.bad_request(f'Pod in version "v1" cannot be handled as a Pod: {told}')
            if "/" in name and "." in str(value):
                wrong.append(
                    (f"{path}.{part}[{name}]", "FieldValueInvalid", f"Invalid value: {value}: must be an integer")
                )
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in requests:
        if name in limits and quantity(requests[name]) > quantity(limits[name]):
            told = f'Invalid value: "{requests[name]}": must be less than or equal to {name} limit of {limits[name]}'
            wrong.append((f"{path}.requests", "FieldValueInvalid", told))
    return wrong


_UNITS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}


def quantity(value: Any) -> float:
    """`500m`, `1Gi`, `2e3` as a number."""
    found = re.match(r"^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$", str(value))
    if not found or found[2] not in _UNITS:
        raise refusals.bad_request(f"quantity {value!r} is none")
    return float(found[1]) * _UNITS[found[2]]


def _secret(obj: Object) -> list[schemas.Cause]:
    for name, value in (obj.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            told = f'Secret in version "v1" cannot be handled as a Secret: illegal base64 data in data[{name}]'
            raise refusals.bad_request(told) from error
    if obj.get("type") == "kubernetes.io/dockerconfigjson":
        import json

        held = (obj.get("data") or {}).get(".dockerconfigjson")
        if held is None:
            return [("data[.dockerconfigjson]", "FieldValueRequired", "Required value")]
        try:
            json.loads(base64.b64decode(held))
        except ValueError as error:
            told = f'Invalid value: "<secret contents redacted>": {error}'
            return [("data[.dockerconfigjson]", "FieldValueInvalid", told)]
    return []


def _training_job(kind: Kind, obj: Object) -> list[schemas.Cause]:
    """Rules of the operator's webhook."""
    wrong: list[schemas.Cause] = []
    name = obj["metadata"]["name"]
    if len(name) > 63 or not _LABEL.match(name):
        told = f"Invalid value: \"{name}\": a DNS-1035 label must consist of lower case alphanumeric characters or '-'"
        wrong.append(("metadata.name", "FieldValueInvalid", told))
    field, container_name, known = {
        "TFJob": ("tfReplicaSpecs", "tensorflow", {"PS", "Worker", "Chief", "Master", "Evaluator"}),
        "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", {"Master", "Worker"}),
    }[kind.kind]
    replicas = obj.get("spec", {}).get(field)
    if not replicas:
        return [*wrong, (f"spec.{field}", "FieldValueRequired", "Required value: must be specified")]
    for role, replica in replicas.items():
        path = f"spec.{field}[{role}]"
        if role not in known:
            told = f'Unsupported value: "{role}": supported values: {", ".join(sorted(known))}'
            wrong.append((path, "FieldValueNotSupported", told))
        containers = ((replica.get("template") or {}).get("spec") or {}).get("containers") or []
        if not any(each.get("name") == container_name and each.get("image") for each in containers):
            told = f"Required value: must have at least one container with name {container_name} and an image"
            wrong.append((f"{path}.template.spec.containers", "FieldValueRequired", told))
    return wrong
