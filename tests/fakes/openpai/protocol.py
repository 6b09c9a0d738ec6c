"""Job configs: validation, and conversion by the server."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.fakes import contracts

_SCHEMA = "openpai/job-protocol-v2.server-validator.derived.schema.json"
_KINDS = ("script", "output", "data", "dockerimage")
_FIELDS = ("script", "output", "data", "dockerImage")
_TAG = re.compile(r"<%\s*(.*?)\s*%>", re.S)


#: libyaml if PyYAML was built with it, which is ten times as fast.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """A request that is answered with an error. `status`, `code`: of the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def parsed(text: object) -> dict[str, Any]:
    """Parse a submitted job; refused by the server's rules, and by its schema if available."""
    try:
        job = yaml.load(str(text), LOADER)
    except yaml.YAMLError as error:
        raise Refused(500, "", str(error).replace("\n", " ")) from error
    if not isinstance(job, dict):
        raise _invalid("should be object")
    for field in ("protocolVersion", "name", "type", "taskRoles"):
        if field not in job:
            raise _invalid(f"should have required property '{field}'")
    if fault := contracts.fault(_SCHEMA, "", job) or _own_fault(job):
        raise _invalid(fault)
    _check_prerequisites(job)
    return job


def _own_fault(job: Mapping[str, Any]) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,255}", str(job["name"])):
        return "name: should match pattern"
    if job["type"] != "job":
        return "type: should be equal to one of the allowed values"
    if job.get("jobRetryCount", 0) < 0:
        return "jobRetryCount: should be >= 0"
    for name, role in job["taskRoles"].items():
        needed = ("dockerImage", "resourcePerInstance", "commands")
        missing = [field for field in needed if field not in role]
        missing += [field for field in ("cpu", "memoryMB", "gpu") if field not in role.get("resourcePerInstance", {})]
        if missing:
            return f"taskRoles.{name}: should have required property '{missing[0]}'"
    return ""


def _check_prerequisites(job: Mapping[str, Any]) -> None:
    known = {(one["type"], one["name"]) for one in job.get("prerequisites", [])}
    if len(known) < len(job.get("prerequisites", [])):
        raise _invalid("Duplicate prerequisites.")
    for role in job["taskRoles"].values():
        wanted = {(field.lower(), role[field]) for field in _FIELDS if field in role}
        names = {name for _, name in known}
        for name in [name for kind, name in wanted if (kind, name) not in known] + [
            name for name in role.get("prerequisites", []) if name not in names
        ]:
            raise _invalid(f"Prerequisite {name} does not exist.")


def _invalid(message: str) -> Refused:
    return Refused(400, "InvalidProtocolError", message)


def commands(job: Mapping[str, Any], role: str) -> str:
    """Commands of its tasks: trimmed, joined with newlines, with parameter values; secrets are inserted on the node."""
    entry = job["taskRoles"][role]
    lines = [str(command).strip() for command in entry["commands"]]
    found = {one["name"]: one for one in job.get("prerequisites", [])}
    values: dict[str, Any] = {"$parameters": job.get("parameters")}
    values |= {f"${kind}": found.get(entry.get(kind)) for kind in ("script", "output", "data")}
    text = rendered("\n".join(lines), values, keeps_unknown=True).strip()
    return rendered(text, {"$secrets": job["secrets"]}, keeps_unknown=False) if job.get("secrets") else text


def rendered(text: str, values: Mapping[str, Any], *, keeps_unknown: bool) -> str:
    """Replace expressions between `<%` and `%>`.

    On the node, unknown expressions are removed, and values are escaped as HTML.
    """

    def value(tag: re.Match[str]) -> str:
        found: Any = values
        for key in re.sub(r"\[(\d+)\]", r".\1", tag[1]).split("."):
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, TypeError, ValueError):
                return f"<% {tag[1]} %>" if keeps_unknown else ""
        return str(found) if keeps_unknown else html.escape(str(found))

    return _TAG.sub(value, text)


def masked(text: str) -> str:
    """The stored text: everything from a line `secrets:` to the next line that starts with a letter is replaced.

    This is a text search: a config with its top level in braces is unchanged.
    """
    return re.sub(r"(?ms)^secrets:.*?(?=^\w)", 'secrets: "******"\n', f"{text}\nZ")[:-2]
