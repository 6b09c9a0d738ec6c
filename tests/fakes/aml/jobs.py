"""Records of command jobs: validation, allowed changes, lists and answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.aml.answers import user_error
from tests.fakes.aml.assets import check_body

Json = dict[str, Any]
ENDED = ("Completed", "Failed", "Canceled")
_MUTABLE = {"description", "tags", "displayName", "properties", "isArchived"}
#: Field of a body → its name in Azure's messages.
_NAMED = {"outputs": "Outputs", "inputs": "Inputs", "environmentId": "EnvironmentId", "codeId": "CodeId"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_OUTPUT = re.compile(
    r"azureml:/(?:/subscriptions/[^/]+/resourcegroups/[^/]+/workspaces/[^/]+)?/datastores/([^/]+)/paths/(.*)", re.I
)
_EXPRESSION = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z0-9_]+)\s*\}\}")


class Jobs(dict[str, Json]):
    """Name → ``properties`` as put, ``status``, and times. `folder`: persistent state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__({file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))})

    def save(self, name: str) -> None:
        (self._folder / f"{name}.json").write_text(json.dumps(self[name]))

    def remove(self, name: str) -> None:
        del self[name]
        (self._folder / f"{name}.json").unlink(missing_ok=True)


def check(name: str, body: Any) -> Json:
    """The validated properties of a job."""
    if not _NAME.fullmatch(name):
        raise user_error(f"The job's name {name!r} is invalid.", "BadArgument")
    check_body("CommandJobResource", body)
    properties: Json = body["properties"]
    for variable, value in (properties.get("environmentVariables") or {}).items():
        if not isinstance(value, str):
            raise user_error(f"environmentVariables.{variable} must be a string.", "BadArgument")
    for kind, one in _EXPRESSION.findall(properties["command"]):
        if one not in (properties.get(kind) or {}):
            raise user_error(f"command: {kind}.{one} is not defined.", "BadArgument")
    for one in (properties.get("outputs") or {}).values():
        if one.get("uri"):
            output_place(one["uri"])
    return properties


def check_unchanged(before: Json, after: Json) -> None:
    """Raises if a field differs that cannot change."""
    names = {*before, *after} - _MUTABLE - {"status", "services"}
    changed = [name for name in sorted(names) if before.get(name) != after.get(name)]
    if changed:
        listed = ",  ".join(_NAMED.get(name, name[0].upper() + name[1:]) for name in changed)
        raise user_error(
            "A job with this name already exists. If you are trying to create a new job, use a different name. If you"
            f" are trying to update an existing job, the existing job's {listed} cannot be changed. Only description,"
            " tags, displayName, properties, and isArchived can be updated.",
            "Immutable",
            "JobPropertyImmutable",
        )


def output_place(uri: str) -> str:
    """The path of an output in the workspace's blob store."""
    found = _OUTPUT.fullmatch(uri)
    if found is None:
        raise user_error(f"outputs: {uri} is not the address of a datastore.", "BadArgument")
    if found[1] != "workspaceblobstore":
        raise user_error(f"outputs: the datastore {found[1]} was not found.", "NotFound")
    return found[2].strip("/")


def command(text: str, places: Mapping[str, str]) -> str:
    """The command with its outputs' folders inserted; raises for other placeholders."""
    return _EXPRESSION.sub(lambda found: places[found[2]] if found[1] == "outputs" else found[0], text)


def listed(jobs: Jobs, query: Mapping[str, str]) -> Iterator[str]:
    """The names in a list, newest first."""
    view = query.get("listViewType", "ActiveOnly")
    for name in reversed(list(jobs)):
        properties = jobs[name]["properties"]
        is_archived = bool(properties.get("isArchived"))
        fits = view == "All" or is_archived == (view == "ArchivedOnly")
        of_type = query.get("jobType", properties["jobType"]) == properties["jobType"]
        tagged = "tag" not in query or query["tag"] in (properties.get("tags") or {})
        if fits and of_type and tagged:
            yield name
