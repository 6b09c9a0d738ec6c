"""Changes by NNI's clients: bad input gets a sentence with 400, 404 or 409 and changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from nni_manager.api.nni import trials
from nni_manager.domain.errors import StoreUnavailable
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from tests.api.world import MemoryPlatform, World

pytestmark = pytest.mark.unit


@pytest.fixture
async def id_(api: httpx.AsyncClient, world: World) -> str:
    answer = await api.post("/api/v1/experiments", json=world.config(maxTrialNumber=3))
    return str(answer.json()["id"])


@pytest.fixture
async def nni(world: World, id_: str) -> AsyncIterator[httpx.AsyncClient]:
    """NNI's API of an open experiment."""
    async with world.calling() as client:
        client.base_url = httpx.URL(f"http://localhost:8080/experiments/{id_}/api/v1/nni/")
        yield client


async def profile(nni: httpx.AsyncClient) -> dict[str, Any]:
    return (await nni.get("experiment")).json()  # type: ignore[no-any-return]


SPACE = {"y": {"_type": "choice", "_value": [1, 2]}}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("TRIAL_CONCURRENCY", "trialConcurrency", 7),
        ("MAX_EXEC_DURATION", "maxExperimentDuration", 3600),
        ("MAX_EXEC_DURATION", "maxExperimentDuration", "30m"),
        ("SEARCH_SPACE", "searchSpace", SPACE),
        ("MAX_TRIAL_NUM", "maxTrialNumber", 50),
    ],
)
async def test_one_field_of_the_profile_is_changed(nni: httpx.AsyncClient, kind: str, field: str, value: Any) -> None:
    """The whole profile is sent; differences in other fields are ignored."""
    before = await profile(nni)
    sent = {**before, "params": {**before["params"], field: value, "trialCommand": "rm -rf /", "nonsense": 1}}
    answer = await nni.put(f"experiment?update_type={kind}", content=json.dumps(sent))  # without a content type
    assert (answer.status_code, answer.content) == (200, b"")
    after = await profile(nni)
    assert after["params"] == {**before["params"], field: value}
    assert after["revision"] == before["revision"] + 1


@pytest.mark.parametrize(
    ("query", "body", "word"),
    [
        ("", b'{"params": {"trialConcurrency": 2}}', "update_type"),
        ("?update_type=", b'{"params": {"trialConcurrency": 2}}', "update_type"),
        ("?update_type=TUNER", b'{"params": {"trialConcurrency": 2}}', "update_type"),
        ("?update_type=TRIAL_CONCURRENCY", b"{}", "params.trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": 3}', "params.trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": {"maxTrialNumber": 3}}', "params.trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b"[]", "params.trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": {"trialConcurrency": "many"}}', "trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": {"trialConcurrency": 0}}', "trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": {"trialConcurrency": 30000000}}', "trialConcurrency"),
        ("?update_type=TRIAL_CONCURRENCY", b'{"params": {"trialConcurrency": NaN}}', "params.trialConcurrency"),
        ("?update_type=MAX_EXEC_DURATION", b'{"params": {"maxExperimentDuration": "soon"}}', "maxExperimentDuration"),
        ("?update_type=SEARCH_SPACE", b'{"params": {"searchSpace": [1]}}', "searchSpace"),
        ("?update_type=SEARCH_SPACE", b'{"params": {"searchSpace": {"x": {"_value": [1e999]}}}}', "searchSpace"),
        (
            "?update_type=SEARCH_SPACE",
            rb'{"params": {"searchSpace": {"x": {"_type": "choice", "_value": ["\ud800"]}}}}',
            r"searchSpace: holds '\ud800'",
        ),
        ("?update_type=SEARCH_SPACE", b"", "not JSON"),
        ("?update_type=SEARCH_SPACE", b'{"params": ', "not JSON"),
        ("?update_type=SEARCH_SPACE", b"\xff\xfe", "not JSON"),
        ("?update_type=SEARCH_SPACE", b"[" * 100_000, "nested"),
        ("?update_type=SEARCH_SPACE", b"1" * 5000, "not JSON"),
    ],
)
async def test_a_change_that_cannot_be_made(nni: httpx.AsyncClient, query: str, body: bytes, word: str) -> None:
    before = await profile(nni)
    answer = await nni.put(f"experiment{query}", content=body)
    assert answer.status_code == 400 and word in answer.json()["error"]
    assert "Traceback" not in answer.text
    after = await profile(nni)
    assert after == {**before, "execDuration": after["execDuration"]}


async def test_a_customised_trial(nni: httpx.AsyncClient, world: World, id_: str) -> None:
    for number in range(3):
        answer = await nni.post("trial-jobs", content=json.dumps({"x": number}))
        assert (answer.status_code, answer.json()) == (200, {"sequenceId": number})
    refused = await nni.post("trial-jobs", json={"x": 3})
    assert refused.status_code == 409 and "maxTrialNumber" in refused.json()["error"]
    listed = (await nni.get("trial-jobs")).json()
    records = [json.loads(trial["hyperParameters"][0]) for trial in listed]
    assert records == [
        {"parameter_id": None, "parameter_source": "customized", "parameters": {"x": number}, "parameter_index": 0}
        for number in range(3)
    ]
    assert (await profile(nni))["nextSequenceId"] == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b"3", b'"x"', b"null", b'{"x": NaN}', b'{"x": 1e999}', b"{", rb'{"x": "\ud800"}'],
)
async def test_invalid_parameters(nni: httpx.AsyncClient, body: bytes) -> None:
    answer = await nni.post("trial-jobs", content=body)
    assert answer.status_code == 400 and answer.json()["error"]
    assert (await nni.get("trial-jobs")).json() == []


async def test_a_kill_answers_when_the_trial_has_ended(nni: httpx.AsyncClient, world: World, id_: str) -> None:
    await nni.post("trial-jobs", json={"x": 1})
    trial_id = await _running(nni, world, id_)
    answer = await nni.delete(f"trial-jobs/{trial_id}")
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await nni.get(f"trial-jobs/{trial_id}")).json()["status"] == TrialStatus.USER_CANCELED
    assert (await nni.delete(f"trial-jobs/{trial_id}")).status_code == 200


async def test_a_kill_does_not_wait_for_ever(
    nni: httpx.AsyncClient, world: World, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignored(*_: object) -> None:
        """A platform that ends nothing."""

    monkeypatch.setattr(MemoryPlatform, "cancel", ignored)
    monkeypatch.setattr(trials, "_MOST_WAIT_S", 0.05)
    await nni.post("trial-jobs", json={"x": 1})
    trial_id = await _running(nni, world, id_)
    assert (await nni.delete(f"trial-jobs/{trial_id}")).status_code == 200
    assert (await nni.get(f"trial-jobs/{trial_id}")).json()["status"] == "RUNNING"


async def _running(nni: httpx.AsyncClient, world: World, id_: str) -> str:
    """The id of the only trial, once it runs."""
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        while (trial := (await nni.get("trial-jobs")).json()[0])["status"] != "RUNNING":
            await news.wait()
            news.clear()
    return str(trial["trialJobId"])


@pytest.mark.parametrize("trial_id", ["zzzzz", "no-id", "%00"])
async def test_a_trial_that_cannot_be_killed(nni: httpx.AsyncClient, trial_id: str) -> None:
    answer = await nni.delete(f"trial-jobs/{trial_id}")
    assert answer.status_code == 404 and answer.json()["error"]


async def test_imported_data_is_read_back_byte_for_byte(nni: httpx.AsyncClient) -> None:
    data = (
        '[{"parameter": {"größe": 1.0}, "value": {"default": 1e-5}, "trialJobId": "abcde"},'
        ' {"value": "1", "parameter": {}}]'
    )
    answer = await nni.post("experiment/import-data", content=data)
    assert (answer.status_code, answer.content) == (200, b"")
    (text,) = (await nni.get("experiment/imported-data")).json()
    assert text == (
        '[{"parameter":{"größe":1},"value":{"default":0.00001},"trialJobId":"abcde"},{"value":"1","parameter":{}}]'
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b'[{"parameter": {}}]',
        b'[{"parameter": 1, "value": 1}]',
        b'[{"value": 1}]',
        b'[{"parameter": {"x": NaN}, "value": 1}]',
        b'[{"parameter": {}, "value": Infinity}]',
        b'[{"parameter": {}, "value": "0,5"}]',
    ],
)
async def test_invalid_import(nni: httpx.AsyncClient, body: bytes) -> None:
    answer = await nni.post("experiment/import-data", content=body)
    assert answer.status_code == 400 and answer.json()["error"]
    assert (await nni.get("experiment/imported-data")).json() == []


@pytest.mark.parametrize("body", [b"{}", b'{"local_config": {"useActiveGpu": true}}', b"{", b""])
async def test_cluster_metadata_harms_nothing(nni: httpx.AsyncClient, body: bytes) -> None:
    answer = await nni.put("experiment/cluster-metadata", content=body)
    assert (answer.status_code, answer.content) == (200, b"")


async def test_launcher_posts_the_experiment(nni: httpx.AsyncClient, id_: str) -> None:
    params = (await profile(nni))["params"]
    for body in (b"", b"{}", json.dumps(params).encode()):
        answer = await nni.post("experiment", content=body)
        assert (answer.status_code, answer.json()) == (200, {"experiment_id": id_})
    other = await nni.post("experiment", json={**params, "trialCommand": "python3 other.py"})
    assert other.status_code == 409 and "nnictl create" in other.json()["error"]
    assert (await nni.post("experiment", json=[1])).status_code == 400


async def test_a_stop_answers_at_once_and_then_stops(nni: httpx.AsyncClient, world: World, id_: str) -> None:
    await nni.post("trial-jobs", json={"x": 1})
    await _running(nni, world, id_)
    answer = await nni.delete("experiment")
    assert (answer.status_code, answer.content) == (200, b"")
    await world.supervisor.closed(id_)
    assert (await nni.get("check-status")).json() == {"status": "STOPPED", "errors": []}
    assert (await nni.get("trial-jobs")).json()[0]["status"] == "USER_CANCELED"
    assert (await nni.delete("experiment")).status_code == 200


async def test_a_stop_that_cannot_be_stored_says_so(
    nni: httpx.AsyncClient, world: World, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client that waits for the end of the experiment's process would wait for ever."""

    async def full(*_: object) -> None:
        raise StoreUnavailable("the database has no room: the disk is full")

    monkeypatch.setattr(ExperimentCommands, "stop", full)
    answer = await nni.delete("experiment")
    assert answer.status_code == 503 and "the disk is full" in answer.json()["error"]
    assert world.commands.at_work(id_) is not None


WRITES = [
    ("PUT", "experiment?update_type=TRIAL_CONCURRENCY", {"params": {"trialConcurrency": 3}}),
    ("POST", "experiment", {}),
    ("POST", "experiment/import-data", []),
    ("POST", "trial-jobs", {"x": 1}),
    ("DELETE", "trial-jobs/good1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
@pytest.mark.parametrize(
    ("status", "word"), [(ExperimentStatus.VIEWED, "readonly mode"), (ExperimentStatus.STOPPED, "resume")]
)
async def test_closed_experiment_cannot_be_changed(
    api: httpx.AsyncClient, world: World, status: ExperimentStatus, word: str, method: str, path: str, body: Any
) -> None:
    await world.add("seeded", status=status)
    answer = await api.request(method, f"/experiments/seeded/api/v1/nni/{path}", json=body)
    assert answer.status_code == 409 and word in answer.json()["error"]


async def test_a_view_is_ended_by_a_stop(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    assert (await api.post("/api/v1/experiments/view", json={"id": "seeded"})).status_code == 200
    root = "/experiments/seeded/api/v1/nni"
    assert (await api.get(f"{root}/check-status")).json() == {"status": "VIEWED", "errors": []}
    assert (await api.delete(f"{root}/experiment")).status_code == 200
    async with asyncio.timeout(20):
        while (await api.get(f"{root}/check-status")).json()["status"] != "STOPPED":  # the answer came before
            pass


async def test_a_body_that_is_too_large(nni: httpx.AsyncClient) -> None:
    answer = await nni.post("trial-jobs", content=b" " * (9 * 2**20))
    assert answer.status_code == 413 and "8 MB" in answer.json()["error"]


@pytest.mark.parametrize("written", ["python3 trial.py --token hunter22", "python3 trial.py --token ***"])
async def test_profile_masks_the_command_and_start_takes_both(
    api: httpx.AsyncClient, world: World, written: str
) -> None:
    command = "python3 trial.py --token hunter22"
    answer = await api.post("/api/v1/experiments", json=world.config(trialCommand=command))
    id_ = answer.json()["id"]
    assert "hunter22" not in (await api.get(f"/api/v1/experiments/{id_}")).json()["config"]["trialCommand"]
    assert [one["code"] for one in answer.json()["warnings"]] == ["LITERAL_SECRET"]
    async with world.calling() as client:
        client.base_url = httpx.URL(f"http://localhost:8080/experiments/{id_}/api/v1/nni/")
        params = (await profile(client))["params"]
        assert params["trialCommand"] == "python3 trial.py --token ***"
        answer = await client.post("experiment", json={**params, "trialCommand": written})
        assert (answer.status_code, answer.json()) == (200, {"experiment_id": id_})
    opened = world.commands.at_work(id_)
    assert opened is not None and opened.spec.trial_command == command
