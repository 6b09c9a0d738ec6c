"""Codes, environments and upload locations. The first put of an asset fixes its path."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tests.fakes import contracts
from tests.fakes.aml.answers import Answer, user_error

Json = dict[str, Any]
SCHEMA = "aml/command-job.derived.schema.json"
_KINDS = {"codes": "CodeVersion", "environments": "EnvironmentVersion"}
#: Fields of an asset that cannot change.
_FIXED = {"codes": "codeUri", "environments": "image"}


class Assets:
    """`folder`: persistent state; `containers`: storage containers, one folder each."""

    def __init__(self, folder: Path, containers: Path, resource: str) -> None:
        self._folder, self._containers, self._resource = folder, containers, resource
        folder.mkdir(parents=True, exist_ok=True)
        #: Path within the workspace → properties.
        self.by_path: dict[str, Json] = {unquote(file.name): json.loads(file.read_text()) for file in folder.iterdir()}

    def get(self, path: str) -> Answer:
        if path not in self.by_path:
            kind, name, _, version = path.split("/")
            raise user_error(f"{kind} {name}:{version} was not found.", "NotFound", status=404)
        return Answer.of(self._shown(path))

    def versions(self, kind: str, name: str, query: Mapping[str, str]) -> Answer:
        """Versions of a name; with `hash`, those with this content."""
        found = [path for path in self.by_path if path.startswith(f"{kind}/{name}/versions/")]
        if "hash" in query:
            found = [path for path in found if self.by_path[path].get("properties", {}).get("hash") == query["hash"]]
        return Answer.of({"value": [self._shown(path) for path in found]})

    def put(self, path: str, body: Any) -> Answer:
        kind = path.partition("/")[0]
        check_body(_KINDS[kind], body)
        wanted, known = body["properties"], self.by_path.get(path)
        if known is not None and known.get(_FIXED[kind]) != wanted.get(_FIXED[kind]):
            if kind == "codes":
                raise user_error("Asset paths cannot be updated.")
            raise user_error(f"{path} exists with another image.", "Immutable")
        if kind == "codes":
            self.code_folder_at(str(wanted.get("codeUri")))
        self.by_path[path] = {**wanted, "provisioningState": "Succeeded"}
        (self._folder / quote(path, safe="")).write_text(json.dumps(self.by_path[path]))
        return Answer.of(self._shown(path), 201 if known is None else 200)

    def start_upload(self, body: Any, address: str) -> Answer:
        """A new container at each call."""
        check_body("PendingUploadRequestDto", body)
        if body.get("pendingUploadType") != "TemporaryBlobReference":
            raise user_error("pendingUploadType: TemporaryBlobReference is expected.", "BadArgument")
        name = f"upload-{uuid.uuid4().hex}"
        (self._containers / name).mkdir(parents=True)
        uri = f"{address}/{name}"
        credential = {"credentialType": "SAS", "sasUri": f"{uri}?sv=2024-11-04&sr=c&sp=rcwl&sig={signature(name)}"}
        told = {"blobUri": uri, "credential": credential}
        answer = {"pendingUploadId": uuid.uuid4().hex, "pendingUploadType": "TemporaryBlobReference"}
        return Answer.of({**answer, "blobReferenceForConsumption": told})

    def code_folder(self, id: str) -> Path:
        """The folder of a registered code, by its Resource Manager id."""
        properties = self.by_path.get(id.removeprefix(f"{self._resource}/"))
        if not id.startswith(f"{self._resource}/codes/") or properties is None:
            raise user_error(f"codeId: {id} was not found.", "NotFound")
        return self.code_folder_at(properties["codeUri"])

    def code_folder_at(self, uri: str) -> Path:
        """The folder that was uploaded to an address."""
        path = unquote(urlsplit(uri).path).strip("/")
        folder = self._containers / path
        if not path or ".." in Path(path).parts or not folder.exists():
            raise user_error(f"codeUri: nothing is at {uri}.", "NotFound")
        return folder

    def check_environment(self, id: str) -> None:
        if id.removeprefix(f"{self._resource}/") not in self.by_path or not id.startswith(self._resource):
            raise user_error(f"environmentId: {id} was not found.", "NotFound")

    def _shown(self, path: str) -> Json:
        kind, name, _, version = path.split("/")
        type = f"Microsoft.MachineLearningServices/workspaces/{kind}/versions"
        data = {"createdAt": "2026-01-01T00:00:00Z"}
        id = f"{self._resource}/{kind}/{name}/versions/{version}"
        return {"id": id, "name": version, "type": type, "systemData": data, "properties": self.by_path[path]}


def signature(container: str) -> str:
    """Signature of an address; valid only for this container."""
    return f"sig-of-{container}"


def check_body(definition: str, body: Any) -> None:
    """Check a body against the vendor's schema, if that is available."""
    if not isinstance(body, dict):
        raise user_error("The request has no JSON object as its body.", "BadArgument")
    if fault := contracts.fault(SCHEMA, definition, body):
        raise user_error(fault, "BadArgument", "ArgumentInvalid")


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
