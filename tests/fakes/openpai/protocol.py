"""Jobs of protocol 2: refused or taken, and their commands rendered, as the rest-server does it.

Its own rules always; the vendor's two schemas, the published one and the stricter one that the server runs, where they
are at hand.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import yaml

from tests.fakes import contracts

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}")
_ROLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TOP = {
    "protocolVersion", "name", "type", "version", "contributor", "description", "prerequisites", "parameters",
    "secrets", "jobRetryCount", "taskRoles", "deployments", "defaults", "extras",
}  # fmt: skip
_OF_ROLE = {
    "protocolVersion", "instances", "completion", "taskRetryCount", "prerequisites", "dockerImage", "data", "output",
    "script", "extraContainerOptions", "resourcePerInstance", "commands",
}  # fmt: skip
#: In C, where there is one: a tenth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TAG = re.compile(r"<%(.*?)%>", re.DOTALL)


class InvalidProtocol(Exception):
    """In the server's words."""


def parsed(text: str) -> dict[str, Any]:
    """Raises InvalidProtocol."""
    try:
        job = yaml.load(text, _LOADER)
    except yaml.YAMLError as error:
        raise InvalidProtocol(f"YAML: {error}") from None
    if not isinstance(job, dict):
        raise InvalidProtocol("data should be object")
    _judge(job)
    for fault in _by_schemas(job):
        raise InvalidProtocol(fault)
    return job


def entrypoint(job: dict[str, Any], role: str) -> str:
    """A role's commands, joined and rendered: tags are replaced, unknown ones by nothing."""
    dictionary = {"$parameters": job.get("parameters"), "$secrets": job.get("secrets")}
    joined = " && ".join(command.strip() for command in job["taskRoles"][role]["commands"])
    return _TAG.sub(lambda tag: _looked_up(tag[1].strip(), dictionary), joined).strip()


def masked(job: dict[str, Any]) -> str:
    """As anybody may read it afterwards."""
    shown = {**job, "secrets": "******"} if job.get("secrets") else job
    return str(yaml.dump(shown, Dumper=_DUMPER, sort_keys=False))


def extras(text: str) -> dict[str, Any]:
    """Of a job as it was submitted."""
    return dict(yaml.load(text, _LOADER).get("extras") or {})


def _looked_up(path: str, dictionary: dict[str, Any]) -> str:
    found: Any = dictionary
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return "" if found is None else str(found)


def _judge(job: dict[str, Any]) -> None:
    _need(set(job) <= _TOP, f"data should NOT have additional properties: {sorted(set(job) - _TOP)}")
    _need(job.get("protocolVersion") in (2, "2"), "data.protocolVersion should be equal to one of the allowed values")
    _need(isinstance(job.get("name"), str) and _NAME.fullmatch(job["name"]), "data.name should match pattern")
    _need(job.get("type") == "job", "data.type should be equal to one of the allowed values")
    roles = job.get("taskRoles")
    _need(isinstance(roles, dict) and bool(roles), "data.taskRoles should NOT have fewer than 1 properties")
    images = {one.get("name") for one in job.get("prerequisites", []) if one.get("type") == "dockerimage"}
    for name, role in job["taskRoles"].items():
        _need(_ROLE.fullmatch(str(name)), f"data.taskRoles should NOT have additional property {name}")
        _need(set(role) <= _OF_ROLE, f"data.taskRoles.{name} should NOT have additional properties")
        resources = role.get("resourcePerInstance") or {}
        for kind in ("cpu", "memoryMB", "gpu"):
            _need(type(resources.get(kind)) is int, f"data.taskRoles.{name}.resourcePerInstance.{kind} is an integer")
        commands = role.get("commands")
        _need(isinstance(commands, list) and bool(commands), f"data.taskRoles.{name}.commands is required")
        _need(all(isinstance(one, str) for one in commands), f"data.taskRoles.{name}.commands should be strings")
        _need(role.get("dockerImage") in images, f"Prerequisite {role.get('dockerImage')} does not exist.")


def _need(holds: object, sentence: str) -> None:
    if not holds:
        raise InvalidProtocol(sentence)


def _by_schemas(job: dict[str, Any]) -> list[str]:
    found = [next(iter(validator.iter_errors(job)), None) for validator in _validators()]
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in found if error is not None]


@functools.cache
def _validators() -> tuple[Any, ...]:
    root = contracts.folder()
    if root is None:
        return ()
    import jsonschema_rs

    server = json.loads((root / "openpai" / "job-protocol-v2.server-validator.derived.schema.json").read_text())
    published = yaml.safe_load((root / "openpai" / "job-protocol-v2-schema.yaml").read_text())
    whole = {**published, "$ref": "#/components/schemas/JobProtocol"}
    return jsonschema_rs.Draft7Validator(server), jsonschema_rs.Draft4Validator(whole)
