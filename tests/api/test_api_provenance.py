"""What is recorded of a new experiment, on REST and on the page's Config tab."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.world import World

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"
_COMMIT = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "--quiet", "--message", "begin"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A code directory with one commit, and a change that is not committed."""
    folder = tmp_path / "code-in-git"
    folder.mkdir()
    (folder / "trial.py").write_text("print(1)\n")
    for command in (["git", "init", "--quiet"], ["git", "add", "."], _COMMIT):
        subprocess.run(command, cwd=folder, check=True)
    (folder / "trial.py").write_text("print('</script><b>changed</b>')\n")
    return folder


async def create(api: httpx.AsyncClient, world: World, **fields: Any) -> str:
    answer = await api.post(EXPERIMENTS, json=world.config(**fields))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_new_experiment_has_the_state_of_its_code(api: httpx.AsyncClient, world: World, repository: Path) -> None:
    id_ = await create(api, world, trialCodeDirectory=str(repository))
    found = (await api.get(f"{EXPERIMENTS}/{id_}/provenance")).json()
    assert found["code"]["directory"] == str(repository) and len(found["code"]["commit"]) == 40
    assert "changed" in found["code"]["diff"] and found["python"]["packages"] and found["host"]
    await world.commands.stop(id_)
    assert (await api.get(f"{EXPERIMENTS}/{id_}/provenance")).json() == found


async def test_code_without_git_is_recorded_with_the_reason(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    found = (await api.get(f"{EXPERIMENTS}/{id_}/provenance")).json()
    assert found["code"]["problem"] and found["python"]["version"]


async def test_what_the_caller_recorded_is_kept(api: httpx.AsyncClient, world: World, repository: Path) -> None:
    first = await create(api, world, trialCodeDirectory=str(repository))
    record = {**(await api.get(f"{EXPERIMENTS}/{first}/provenance")).json(), "host": "laptop"}
    body = {"config": _text(world), "provenance": record}
    id_ = (await api.post(EXPERIMENTS, json=body)).json()["id"]
    assert (await api.get(f"{EXPERIMENTS}/{id_}/provenance")).json() == record


async def test_resume_warns_of_an_edited_file(api: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    file = tmp_path / "exp.yml"
    file.write_text(_text(world))
    body = {"config": _text(world), "directory": str(tmp_path), "file": "some/exp.yml"}
    id_ = (await api.post(EXPERIMENTS, json=body)).json()["id"]
    assert (await api.get(f"{EXPERIMENTS}/{id_}/provenance")).json()["experimentFile"] == str(file)
    for text, code in ((json.dumps(world.config(maxTrialNumber=77)), ["FILE_EDITED"]), (_text(world), [])):
        file.write_text(text)
        assert (await api.post(f"{EXPERIMENTS}/{id_}/resume")).is_success
        warnings = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
        assert [one["code"] for one in warnings] == code


def _text(world: World) -> str:
    return json.dumps(world.config())


@pytest.mark.parametrize("record", [{}, {"host": 1}, 7])
async def test_malformed_record_is_refused(api: httpx.AsyncClient, world: World, record: object) -> None:
    answer = await api.post(EXPERIMENTS, json={"config": _text(world), "provenance": record})
    assert answer.status_code == 400 and "provenance" in answer.json()["error"]


async def test_experiment_without_a_record_says_so(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await api.get(f"{EXPERIMENTS}/seeded/provenance")
    assert answer.status_code == 404 and "has no record of its code" in answer.json()["error"]
