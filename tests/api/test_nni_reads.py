"""Reads of NNI's clients, below an experiment's prefix on the service: shapes, texts, names of files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from nni_manager.api.application import create_application
from nni_manager.api.nni import placeholder_process
from nni_manager.domain.experiment import ExperimentStatus
from tests.api.world import CREATED_MS, World, raw_get

pytestmark = pytest.mark.unit

ROOT = "/experiments/seeded/api/v1/nni"


@pytest.fixture
async def nni(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """NNI's API of the experiment ``seeded``, which is closed."""
    await world.add("seeded", maxExperimentDuration="2h")
    async with world.calling() as client:
        client.base_url = httpx.URL(f"http://localhost:8080{ROOT}/")
        yield client


@pytest.fixture
def without_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of an open experiment without a placeholder process, which would outlive the test by a moment."""
    monkeypatch.setattr(placeholder_process, "_COMMAND", "/nowhere/cat")


async def read(nni: httpx.AsyncClient, path: str) -> Any:
    answer = await nni.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    return answer.json()


async def test_the_profile(nni: httpx.AsyncClient, world: World) -> None:
    found = await read(nni, "experiment")
    params = found.pop("params")
    assert params["trialCommand"] == "python3 trial.py" and params["maxExperimentDuration"] == "2h"
    assert "assessor" not in params and params["trainingService"]["platform"] == "local"
    assert found == {
        "id": "seeded",
        "execDuration": 60,
        "logDir": str(world.data / "seeded"),
        "startTime": CREATED_MS,
        "endTime": CREATED_MS + 60_000,
        "nextSequenceId": 5,
        "revision": 2,
    }


async def test_a_profile_without_an_end_has_no_end(api: httpx.AsyncClient, world: World) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config(maxTrialNumber=None))).json()["id"]
    found = (await api.get(f"/experiments/{id_}/api/v1/nni/experiment")).json()
    assert "endTime" not in found and "maxTrialNumber" not in found["params"]


async def test_secrets_do_not_leave_in_the_profile(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", canonical={"storageAccountKey": "s3cret"})
    answer = await api.get(f"{ROOT}/experiment")
    assert answer.json()["params"]["storageAccountKey"] == "******" and "s3cret" not in answer.text


async def test_trials_metrics_and_the_export_are_of_one_piece(nni: httpx.AsyncClient) -> None:
    trials = {trial["trialJobId"]: trial for trial in await read(nni, "trial-jobs")}
    assert list(trials) == ["good1", "nannn", "infin", "fails", "waits"]
    assert await read(nni, "trial-jobs/good1") == trials["good1"]
    assert [trial["trialJobId"] for trial in await read(nni, "trial-jobs?status=FAILED")] == ["fails"]
    metrics = await read(nni, "metric-data")
    assert await read(nni, "metric-data/") == metrics == await read(nni, "metric-data-range/0/4")
    assert await read(nni, "metric-data-range/-99999999999999999999/99999999999999999999") == metrics
    finals = {metric["trialJobId"]: metric for metric in metrics if metric["type"] == "FINAL"}
    assert {id_: trial["finalMetricData"] for id_, trial in trials.items() if "finalMetricData" in trial} == {
        id_: [metric] for id_, metric in finals.items()
    }
    export = await read(nni, "export-data")
    assert [one["trialJobId"] for one in export] == ["good1", "nannn", "infin"]
    for one in export:
        assert set(one) == {"parameter", "value", "trialJobId"}
        assert one["value"] == json.loads(finals[one["trialJobId"]]["data"])
        record = json.loads(trials[one["trialJobId"]]["hyperParameters"][0])
        assert one["parameter"] == record["parameters"]


async def test_metrics_by_trial_and_type(nni: httpx.AsyncClient) -> None:
    metrics = await read(nni, "metric-data")
    assert all(set(one) == {"timestamp", "trialJobId", "parameterId", "type", "sequence", "data"} for one in metrics)
    good = [one for one in metrics if one["trialJobId"] == "good1"]
    assert await read(nni, "metric-data/good1") == good
    assert await read(nni, "metric-data/good1?type=PERIODICAL") == good[:2]
    assert await read(nni, "metric-data/nobod") == await read(nni, "metric-data?type=CUSTOM") == []
    assert len(await read(nni, "metric-data?type=FINAL")) == 3
    assert await read(nni, "metric-data-range/0/0") == good
    latest = await read(nni, "metric-data-latest")
    assert [(one["trialJobId"], one["type"], one["sequence"]) for one in latest] == [
        ("good1", "FINAL", 0),
        ("nannn", "FINAL", 0),
        ("infin", "FINAL", 0),
        ("good1", "PERIODICAL", 1),
        ("nannn", "PERIODICAL", 0),
    ]


@pytest.mark.parametrize("bounds", ["a/b", "0/", "1.5/2", f"{'9' * 40}/0", "3/1", "٣/٤"])
async def test_invalid_range_is_empty(nni: httpx.AsyncClient, bounds: str) -> None:
    answer = await nni.get(f"metric-data-range/{bounds}")
    assert (answer.status_code, answer.json()) == (200, []) or (answer.status_code == 404 and answer.json()["error"])


async def test_statistics_and_imports(nni: httpx.AsyncClient) -> None:
    assert await read(nni, "job-statistics") == [
        {"trialJobStatus": "SUCCEEDED", "trialJobNumber": 3},
        {"trialJobStatus": "FAILED", "trialJobNumber": 1},
        {"trialJobStatus": "WAITING", "trialJobNumber": 1},
    ]
    assert await read(nni, "experiment/imported-data") == []


async def test_the_version_is_text_with_three_parts(nni: httpx.AsyncClient) -> None:
    answer = await nni.get("version")
    assert answer.text == "1.2.3" and answer.headers["content-type"] == "application/json"


async def test_metadata_as_in_nnis_registry(nni: httpx.AsyncClient, world: World) -> None:
    await world.add("other", status=ExperimentStatus.VIEWED, experimentName=None)
    own = await read(nni, "experiment-metadata")
    assert own == {
        "id": "seeded",
        "startTime": CREATED_MS,
        "endTime": CREATED_MS + 60_000,
        "status": "STOPPED",
        "platform": "local",
        "experimentName": "digits",
        "tag": [],
        "logDir": str(world.data),
        "prefixUrl": None,
        "webuiUrl": [],
    }
    found = {one["id"]: one for one in await read(nni, "experiments-info")}
    assert found["seeded"] == own
    assert found["other"]["status"] == "VIEWED" and found["other"]["experimentName"] is None


@pytest.mark.usefixtures("without_placeholder")
async def test_metadata_name_the_view(api: httpx.AsyncClient, world: World) -> None:
    endpoint = {"port": 8888, "urlPrefix": "/my/pre/"}
    body = {"config": json.dumps(world.config()), "directory": str(world.code), "endpoint": endpoint}
    id_ = (await api.post("/api/v1/experiments", json=body)).json()["id"]
    found = (await api.get(f"/experiments/{id_}/api/v1/nni/experiment-metadata")).json()
    assert (found["port"], found["prefixUrl"]) == (8888, "my/pre")
    assert found["webuiUrl"] == ["http://127.0.0.1:8888/my/pre"] and found["endTime"] == "N/A"
    await world.commands.stop(id_)


@pytest.mark.usefixtures("without_placeholder")
async def test_metadata_name_the_service_where_there_is_no_view(world: World) -> None:
    listener = {"kind": "service", "address": "http://127.0.0.1:9090"}
    context = replace(world.context, listeners=lambda: [listener])
    async with world.calling(create_application(context)) as client:
        id_ = (await client.post("/api/v1/experiments", json=world.config())).json()["id"]
        found = (await client.get(f"/experiments/{id_}/api/v1/nni/experiment-metadata")).json()
        assert (found["port"], found["prefixUrl"]) == (9090, f"experiments/{id_}")
        assert found["webuiUrl"] == [f"http://127.0.0.1:9090/experiments/{id_}"]
        await world.commands.stop(id_)


@pytest.mark.parametrize(
    ("name", "kind", "body"),
    [
        ("stdout", "text/plain; charset=utf-8", "0123456789"),
        ("stderr", "text/plain; charset=utf-8", "stderr is empty."),
        ("trial.stdout", "text/plain; charset=utf-8", "0123456789"),
        ("trial.stderr", "text/plain; charset=utf-8", "stderr is empty."),
        ("trial.log", "text/plain; charset=utf-8", "trial.log is empty."),  # there is none
        ("parameter.cfg", "application/octet-stream", "{}"),
    ],
)
async def test_files_of_a_trial(nni: httpx.AsyncClient, name: str, kind: str, body: str) -> None:
    answer = await nni.get(f"trial-file/good1/{name}")
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (200, kind, body)


async def test_logs_are_next_to_the_api(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await api.get("/experiments/seeded/logs/nnimanager.log")
    assert (answer.status_code, answer.text) == (200, "one\ntwo\n")
    assert (await api.get("/experiments/seeded/logs/dispatcher.log")).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        f"{ROOT}/trial-file/good1/..%2F..%2F..%2Fdb%2Fnni.sqlite",
        f"{ROOT}/trial-file/good1/..",
        f"{ROOT}/trial-file/good1/.%2e",
        f"{ROOT}/trial-file/good1/%2e%2e%5cdb",
        f"{ROOT}/trial-file/good1/%00",
        f"{ROOT}/trial-file/good1/link",
        f"{ROOT}/trial-file/good1/outbox",
        f"{ROOT}/trial-file/..%2Fdb/nni.sqlite",
        f"{ROOT}/trial-file/zzzzz/stdout",
        "/experiments/seeded/logs/..%2Fdb%2Fnni.sqlite",
        "/experiments/seeded/logs/..",
        "/experiments/seeded/logs/",
        "/experiments/..%2Fseeded/api/v1/nni/experiment",
    ],
)
async def test_no_name_leads_out_of_its_folder(world: World, path: str) -> None:
    folder = await world.add("seeded")
    (folder.trials / "good1" / "link").symlink_to(folder.database)
    (folder.trials / "good1" / "outbox").mkdir()
    answer = await raw_get(create_application(world.context), path)
    assert answer.status == 404 and json.loads(answer.body)["error"]
    assert b"SQLite" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "trial-jobs/zzzzz", 404),
        ("GET", "nothing", 404),
        ("GET", "", 404),
        ("PATCH", "experiment", 405),
        ("POST", "version", 405),
        ("POST", "tensorboard", 400),
        ("GET", "tensorboard/abc", 404),
        ("PUT", "tensorboard/abc", 404),
        ("DELETE", "tensorboard/abc", 404),
    ],
)
async def test_refusals_are_json_with_a_sentence(nni: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await nni.request(method, path)
    assert answer.status_code == status and list(answer.json()) == ["error"] and len(answer.json()["error"]) > 10


async def test_there_are_no_tensorboards(nni: httpx.AsyncClient) -> None:
    assert await read(nni, "tensorboard-tasks") == []
    assert (await nni.delete("tensorboard-tasks")).content == b""


@pytest.mark.parametrize("path", ["check-status", "experiment", "trial-jobs", "metric-data"])
async def test_head_and_options(nni: httpx.AsyncClient, path: str) -> None:
    assert (await nni.head(path)).status_code == 200
    allowed = await nni.options(path)
    assert allowed.status_code == 200 and "GET" in allowed.headers["allow"] and allowed.text == allowed.headers["allow"]
    assert "access-control-allow-origin" not in allowed.headers


@pytest.mark.parametrize(
    "path",
    [
        "check-status",
        "experiment",
        "trial-jobs",
        "experiment-metadata",
        "metric-data",
        "version",
        "experiments-info",
        "tensorboard-tasks",
    ],
)
async def test_unknown_experiment(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(f"/experiments/nobody/api/v1/nni/{path}")
    assert answer.status_code == 404 and "nobody" in answer.json()["error"]


async def test_another_origin_is_refused(nni: httpx.AsyncClient) -> None:
    for method, path in (("GET", "check-status"), ("GET", "trial-jobs"), ("DELETE", "experiment")):
        answer = await nni.request(method, path, headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
