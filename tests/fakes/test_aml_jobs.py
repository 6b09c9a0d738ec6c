"""The fake of Azure ML, over HTTP: jobs, states, containers, and outputs that are uploaded when closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import contracts, sandbox
from tests.fakes.aml.output_mounts import OutputMount
from tests.fakes.aml.server import serving
from tests.fakes.aml.workspace import ENDED, Workspace
from tests.fakes.test_aml_assets import RESOURCE, TOKEN, Caller
from tests.waiting import until

pytestmark = [pytest.mark.unit, pytest.mark.timeout(90)]
needs_containers = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")
OUTPUT = "azureml://datastores/workspaceblobstore/paths/place"


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    workspace = Workspace(tmp_path / "workspace", RESOURCE)
    with serving(workspace, [TOKEN]):
        caller = Caller(workspace)
        caller.call("PUT", "environments/image/versions/1", {"properties": {"image": "example/trial:1"}})
        yield caller
        caller.http.close()
        workspace.destroy_all()


def body(command: str, **fields: Any) -> dict[str, Any]:
    return {
        "properties": {
            "jobType": "Command",
            "command": command,
            "environmentId": f"{RESOURCE}/environments/image/versions/1",
            "computeId": f"{RESOURCE}/computes/gpu-cluster",
            "outputs": {"out": {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": OUTPUT}},
            **fields,
        }
    }


def status(caller: Caller, name: str = "j1") -> str:
    told = caller.call("GET", f"jobs/{name}").json()
    assert not contracts.fault("aml/command-job.derived.schema.json", "CommandJobResource", told)
    return str(told["properties"]["status"])


def run(caller: Caller, command: str, **fields: Any) -> str:
    """A job's final status."""
    put = caller.call("PUT", "jobs/j1", body(command, **fields))
    assert put.status_code == 201, put.text
    until(lambda: status(caller) in ENDED)
    return status(caller)


# Records


def test_job_cannot_change_after_its_put(caller: Caller) -> None:
    caller.workspace.faults.hold = True
    first = caller.call("PUT", "jobs/j1", body("true", tags={"a": "1"}))
    again = caller.call("PUT", "jobs/j1", body("true", tags={"a": "2"}))
    assert (first.status_code, again.status_code) == (201, 200)
    refused = caller.call("PUT", "jobs/j1", body("false"))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "UserError")
    assert "the existing job's Command cannot be changed" in error["message"]
    inner = next(one["info"]["value"] for one in error["additionalInfo"] if one["type"] == "InnerError")
    assert (inner["code"], inner["innerError"]["code"]) == ("Immutable", "JobPropertyImmutable")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"computeId": f"{RESOURCE}/computes/none"}, "none"),
        ({"environmentId": f"{RESOURCE}/none"}, "environmentId"),
        ({"codeId": f"{RESOURCE}/codes/none/versions/1"}, "codeId"),
        ({"command": "${{inputs.x}}"}, "inputs.x"),
        ({"environmentVariables": {"A": 1}}, "environmentVariables"),
        ({"outputs": {"out": {"jobOutputType": "uri_folder", "uri": "azureml://datastores/other/paths/x"}}}, "other"),
    ],
)
def test_unknown_job_is_refused(caller: Caller, fields: dict[str, Any], word: str) -> None:
    refused = caller.call("PUT", "jobs/j1", body(**{"command": "true", **fields}))
    assert refused.status_code == 400 and word in refused.json()["error"]["message"]


def test_lists_have_a_tag_and_pages(caller: Caller) -> None:
    caller.workspace.faults.hold, caller.workspace.faults.page_limit = True, 2
    for number in range(5):
        caller.call("PUT", f"jobs/j{number}", body("true", tags={"mine": "1"} if number else {}))
    address, names = f"{caller.workspace.address}{RESOURCE}/jobs?api-version=2025-12-01&tag=mine", []
    while address:
        told = caller.http.get(address).json()
        names += [one["name"] for one in told["value"]]
        address = told.get("nextLink", "")
    assert names == ["j4", "j3", "j2", "j1"]


def test_lost_answer_hides_an_accepted_job(caller: Caller) -> None:
    caller.workspace.faults.lost_puts = 1
    with pytest.raises(httpx.TransportError):
        caller.call("PUT", "jobs/j1", body("true"))
    assert caller.call("GET", "jobs/j1").status_code == 200


# Containers


@needs_containers
def test_job_passes_its_states_and_ends_by_exit_code(caller: Caller) -> None:
    caller.workspace.faults.hold = True
    caller.call("PUT", "jobs/j1", body("exit 3"))
    until(lambda: status(caller) == "Queued")
    caller.workspace.release("j1")
    until(lambda: status(caller) in ENDED)
    assert status(caller) == "Failed"


@needs_containers
def test_container_has_its_code_and_no_manager_files(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the manager")
    uri = caller.upload("code")
    caller.put_code("code", uri)
    command = f"ls > ${{{{outputs.out}}}}/listed; pwd >> ${{{{outputs.out}}}}/listed; ! cat {tmp_path}/secret"
    assert run(caller, command, codeId=f"{RESOURCE}/codes/code/versions/1") == "Completed"
    listed = (caller.workspace.blobs.folder / "place" / "listed").read_text().split()
    assert listed == ["run.sh", "/mnt/azureml/cr/j/j1/exe/wd"]


@needs_containers
def test_file_is_uploaded_when_it_is_closed(caller: Caller) -> None:
    folder = caller.workspace.blobs.folder / "place"
    command = (
        "exec 3> ${{outputs.out}}/open; echo one >&3; sync; echo two > ${{outputs.out}}/closed;"
        " until [ -e ${{outputs.out}}/go ]; do sleep 0.05; done; exec 3>&-;"
        " until [ -e ${{outputs.out}}/end ]; do sleep 0.05; done"
    )
    caller.call("PUT", "jobs/j1", body(command))
    until((folder / "closed").exists)
    assert not (folder / "open").exists(), "held open: nothing of it"
    place = f"{caller.workspace.address}/azureml-blobstore/place"
    caller.http.put(f"{place}/go", content=b"", headers={"x-ms-blob-type": "BlockBlob"})
    until(lambda: caller.http.get(f"{place}/open").text == "one\n")
    caller.http.put(f"{place}/end", content=b"", headers={"x-ms-blob-type": "BlockBlob"})
    until(lambda: status(caller) == "Completed")


@needs_containers
def test_cancelled_job_gets_a_signal(caller: Caller) -> None:
    command = (
        "trap 'echo heard > ${{outputs.out}}/end; exit 0' TERM; touch ${{outputs.out}}/up; while :; do sleep 0.1; done"
    )
    caller.call("PUT", "jobs/j1", body(command))
    until((caller.workspace.blobs.folder / "place" / "up").exists)
    answer = caller.call("POST", "jobs/j1/cancel")
    assert answer.status_code == 202 and answer.headers["Location"] and answer.headers["Retry-After"]
    until(lambda: status(caller) == "Canceled")
    assert (caller.workspace.blobs.folder / "place" / "end").read_text() == "heard\n"


@needs_containers
@pytest.mark.parametrize(("identity", "ends"), [(None, "Failed"), ({"identityType": "UserIdentity"}, "Completed")])
def test_identity_datastore_needs_a_job_identity(caller: Caller, identity: dict[str, str] | None, ends: str) -> None:
    caller.workspace.auth_mode = "Identity"
    told = caller.call("GET", "").json()
    assert told["properties"]["systemDatastoresAuthMode"] == "Identity"
    fields = {"identity": identity} if identity else {}
    assert run(caller, "echo ran > ${{outputs.out}}/ran", **fields) == ends
    assert (caller.workspace.blobs.folder / "place" / "ran").exists() == (ends == "Completed")


# The mount


def test_old_version_stays_until_a_file_is_closed_again(tmp_path: Path) -> None:
    mount = OutputMount(tmp_path / "inside", tmp_path / "blobs")
    (tmp_path / "inside" / "a").write_text("one")
    mount.sync()
    with (tmp_path / "inside" / "a").open("a") as file:
        file.write("two")
        file.flush()
        mount.sync()
        assert (tmp_path / "blobs" / "a").read_text() == "one"
    mount.sync()
    assert (tmp_path / "blobs" / "a").read_text() == "onetwo"


def test_output_mount_syncs_both_ways(tmp_path: Path) -> None:
    mount = OutputMount(tmp_path / "inside", tmp_path / "blobs")
    (tmp_path / "inside" / "ours").write_text("1")
    (tmp_path / "blobs" / "theirs").write_text("2")
    mount.sync()
    assert (tmp_path / "inside" / "theirs").read_text() == "2"
    (tmp_path / "inside" / "ours").unlink()
    (tmp_path / "blobs" / "theirs").unlink()
    mount.sync()
    assert not list((tmp_path / "inside").iterdir()) and not list((tmp_path / "blobs").iterdir())
