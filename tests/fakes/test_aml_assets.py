"""The fake of Azure ML, over HTTP: upload addresses, assets, refusals and rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import contracts
from tests.fakes.aml.server import serving
from tests.fakes.aml.workspace import Workspace

pytestmark = pytest.mark.unit
RESOURCE = "/subscriptions/s1/resourceGroups/g1/providers/Microsoft.MachineLearningServices/workspaces/w1"
TOKEN = "t0ken"
UPLOAD = {"pendingUploadType": "TemporaryBlobReference"}


class Caller:
    """A client of a workspace with a token."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.http = httpx.Client(headers={"Authorization": f"Bearer {TOKEN}", "x-ms-version": "2024-11-04"})

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        address = f"{self.workspace.address}{RESOURCE}/{path}"
        return self.http.request(method, address, params={"api-version": "2025-12-01"}, json=body)

    def upload(self, name: str, version: str = "1") -> str:
        """Upload a code of one file; returns its address."""
        told = self.call("POST", f"codes/{name}/versions/{version}/startPendingUpload", UPLOAD).json()
        place = told["blobReferenceForConsumption"]
        container, _, signed = place["credential"]["sasUri"].partition("?")
        file = httpx.put(f"{container}/run.sh?{signed}", content=b"echo", headers={"x-ms-blob-type": "BlockBlob"})
        assert file.status_code == 201, file.text
        return str(place["blobUri"])

    def put_code(self, name: str, uri: str, version: str = "1") -> httpx.Response:
        return self.call("PUT", f"codes/{name}/versions/{version}", {"properties": {"codeUri": uri}})


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    workspace = Workspace(tmp_path / "workspace", RESOURCE)
    with serving(workspace, [TOKEN]):
        caller = Caller(workspace)
        yield caller
        caller.http.close()
        workspace.destroy_all()


def test_every_upload_has_its_own_address(caller: Caller) -> None:
    first, second = caller.upload("code"), caller.upload("code")
    assert first != second
    told = caller.call("POST", "codes/code/versions/1/startPendingUpload", UPLOAD).json()
    assert not contracts.fault("aml/command-job.derived.schema.json", "PendingUploadResponseDto", told)


def test_asset_path_cannot_change(caller: Caller) -> None:
    first, second = caller.upload("code"), caller.upload("code")
    assert [caller.put_code("code", uri).status_code for uri in (first, first)] == [201, 200]
    refused = caller.put_code("code", second)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["message"]) == (
        400,
        "UserError",
        "Asset paths cannot be updated.",
    )
    assert caller.call("GET", "codes/code/versions/1").json()["properties"]["codeUri"] == first
    assert caller.put_code("code", second, version="2").status_code == 201


def test_version_is_found_by_its_hash(caller: Caller) -> None:
    body = {"properties": {"codeUri": caller.upload("code"), "properties": {"hash": "abc", "hash_version": "202208"}}}
    caller.call("PUT", "codes/code/versions/7", body)
    address = f"{caller.workspace.address}{RESOURCE}/codes/code/versions?api-version=2025-12-01&hash="
    assert [one["name"] for one in caller.http.get(f"{address}abc").json()["value"]] == ["7"]
    assert caller.http.get(f"{address}other").json()["value"] == []


def test_signed_address_is_valid_only_for_its_container(caller: Caller) -> None:
    first, second = caller.upload("code"), caller.upload("code")
    signed = f"sig=sig-of-{first.rpartition('/')[2]}"
    there = [httpx.get(f"{uri}/run.sh?{signed}").status_code for uri in (first, second)]
    assert there == [200, 403]


def test_refusals_are_documents(caller: Caller) -> None:
    stranger = httpx.get(f"{caller.workspace.address}{RESOURCE}/jobs", params={"api-version": "2025-12-01"})
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (401, "InvalidAuthenticationToken")
    missing = caller.call("GET", "jobs/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "UserError")
    for told in (stranger, missing):
        assert not contracts.fault("aml/command-job.derived.schema.json", "ErrorResponse", told.json())
    unversioned = caller.http.get(f"{caller.workspace.address}{RESOURCE}/jobs")
    assert unversioned.json()["error"]["code"] == "MissingApiVersionParameter"


def test_storage_refuses_with_its_own_errors(caller: Caller) -> None:
    place = f"{caller.workspace.address}/azureml-blobstore"
    bad = httpx.get(f"{place}/a", headers={"Authorization": "Bearer other", "x-ms-version": "2024-11-04"})
    assert (bad.status_code, bad.headers["x-ms-error-code"]) == (401, "InvalidAuthenticationInfo")
    missing = caller.http.get(f"{place}/a")
    assert (missing.status_code, missing.headers["x-ms-error-code"]) == (404, "BlobNotFound")
    caller.workspace.blobs.folder.joinpath("a").write_text("abc")
    assert caller.http.get(f"{place}/a", headers={"Range": "bytes=1-"}).text == "bc"
    assert caller.http.get(f"{place}/a", headers={"Range": "bytes=3-"}).status_code == 416


def test_outage_and_rate_limit_end(caller: Caller) -> None:
    caller.workspace.faults.throttled = 1
    assert [caller.call("GET", "jobs").status_code for _ in range(2)] == [429, 200]
    caller.workspace.faults.outage = "refuse"
    assert caller.call("GET", "jobs").status_code == 503
    caller.workspace.faults.outage = "drop"
    with pytest.raises(httpx.TransportError):
        caller.call("GET", "jobs")
    caller.workspace.faults.outage = ""
    assert json.loads(caller.call("GET", "jobs").text) == {"value": []}
