"""Experiments: create, list, describe, change, stop, resume, delete."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx
import pytest
import yaml

from nni_manager.api.schemas.experiments import Best, Experiment, ExperimentList
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode
from nni_manager.store import private
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import experiments
from nni_manager.store.index import index
from tests.api.world import CREATED_MS, MemoryPlatform, World
from tests.trial_runner.deep_tree import deep_tree_at
from trial_runner.wire import removal

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"
_JSON = {"Content-Type": "application/json"}


async def create(api: httpx.AsyncClient, world: World, **fields: object) -> str:
    answer = await api.post(EXPERIMENTS, json=world.config(**fields))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_a_closed_experiment_is_described(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded", maxExperimentDuration="2h")
    answer = await api.get(f"{EXPERIMENTS}/seeded")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found = answer.json()
    Experiment.model_validate_json(answer.content)
    config = found.pop("config")
    assert config["trialCommand"] == "python3 trial.py"
    assert found == {
        "notes": "",
        "tags": [],
        "archived": False,
        "id": "seeded",
        "name": "digits",
        "platform": "local",
        "status": "STOPPED",
        "hold": None,
        "errors": [],
        "waitsFor": None,
        "createdMs": CREATED_MS,
        "endedMs": CREATED_MS + 60_000,
        "execDurationMs": 60_000,
        "logPath": str(folder.path),
        "trialConcurrency": 2,
        "maxTrialNumber": 10,
        "maxExperimentDuration": "2h",
        "maxTrialDuration": None,
        "counts": {"SUCCEEDED": 3, "FAILED": 1, "WAITING": 1},
        "trialsMade": 5,
        "noMoreTrials": "",
        "optimizeMode": "maximize",
        "directionNote": "",
        "endedAs": None,
        "best": {"trialId": "good1", "value": 0.875, "parameters": {"x": 0.25, "layers": [8, 4]}},
        "revision": 2,
        "objectives": {},
        "paretoSet": [],
        "paretoSize": 0,
        "commonFailure": None,
        "endpoint": None,
        "warnings": [],
        "references": [],
        "variables": None,
        "services": [
            {
                "name": "local",
                "platform": "local",
                "status": None,
                "sinceMs": None,
                "sentence": "",
                "room": None,
                "limit": None,
                "openAttempts": 0,
            }
        ],
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"maxTrialNumber": 5}, "maxTrialNumber (5) is reached"),
        ({"maxExperimentDuration": "30s"}, "maxExperimentDuration (30s) is reached"),
        (
            {"maxTrialNumber": 3, "maxExperimentDuration": 59},
            "maxTrialNumber (3) is reached and maxExperimentDuration (59) is reached",
        ),
        (
            {"maxTrialNumber": 6, "maxExperimentDuration": 60, "status": ExperimentStatus.DONE},
            "the tuner has no more proposals",
        ),
    ],
)
async def test_why_no_more_trials_are_made(
    api: httpx.AsyncClient, world: World, fields: dict[str, Any], said: str
) -> None:
    await world.add("seeded", **fields)
    assert (await api.get(f"{EXPERIMENTS}/seeded")).json()["noMoreTrials"] == said


async def test_hold_is_shown_only_while_the_experiment_is_open(api: httpx.AsyncClient, world: World) -> None:
    hold = Hold(code=HoldCode.SAME_FAILURE, sentence="the first five trials failed in the same way")
    await world.add("seeded", hold=hold)
    answers = [(await api.get(f"{EXPERIMENTS}/seeded")).json(), (await api.get(EXPERIMENTS)).json()["experiments"][0]]
    assert [(found["status"], found["hold"], found["errors"]) for found in answers] == [("STOPPED", None, [])] * 2
    warned = {"code": "WAS_ON_HOLD", "message": f"it was on hold when it was closed: {hold.sentence}"}
    assert answers[0]["warnings"] == [warned]
    id_ = await create(api, world)
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["hold"] is None


async def test_hold_of_unreadable_experiment_has_the_reason(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", status=ExperimentStatus.RUNNING)
    sentence = "experiment seeded cannot be opened: its database is locked"
    world.supervisor.not_opened["seeded"] = Hold(code=HoldCode.STORE_UNAVAILABLE, sentence=sentence)
    expected = {"code": "STORE_UNAVAILABLE", "sentence": sentence, "details": ""}
    answers = [(await api.get(f"{EXPERIMENTS}/seeded")).json(), (await api.get(EXPERIMENTS)).json()["experiments"][0]]
    assert [(found["hold"], found["errors"]) for found in answers] == [(expected, [sentence])] * 2


async def test_unreadable_stopped_experiment_has_no_invented_values(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("broken", status=ExperimentStatus.RUNNING)
    folder.database.write_bytes(b"this is not a database")
    answer = await api.post(f"{EXPERIMENTS}/broken/stop")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["trialsMade"], told["counts"], told["best"]) == (None, None, None)


async def test_warnings_of_the_file_stand_in_the_answer_and_stay(api: httpx.AsyncClient, world: World) -> None:
    text = json.dumps(world.config(deprecated={"nniManagerIp": "10.0.0.1"}), indent=1)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "deprecated" in one)
    answer = await api.post(EXPERIMENTS, json={"config": text, "file": "my.json"})
    message = f"my.json:{line}: deprecated: has no effect; NNI does not use it either"
    warnings = [{"code": "NO_EFFECT", "message": message}]
    assert (answer.status_code, answer.json()["warnings"]) == (201, warnings)
    id_ = answer.json()["id"]
    found = (await api.get(f"{EXPERIMENTS}/{id_}")).json()
    assert found["warnings"] == warnings and found["hold"] is None and found["errors"] == []
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"] == warnings


TUNER = """
from nni.tuner import Tuner


class Small(Tuner):
    def __init__(self, optimize_mode="minimize"):
        pass

    def update_search_space(self, space):
        pass

    def generate_parameters(self, number, **others):
        return {"x": 0.5}

    def receive_trial_result(self, number, parameters, value, **others):
        pass
"""


async def test_default_of_users_tuner_is_the_direction_and_is_kept(api: httpx.AsyncClient, world: World) -> None:
    (world.code / "small.py").write_text(TUNER)
    tuner = {"className": "small.Small", "codeDirectory": str(world.code)}
    answer = await api.post(EXPERIMENTS, json={"config": json.dumps(world.config(tuner=tuner))})
    assert answer.status_code == 201, answer.text
    [warning] = answer.json()["warnings"]
    assert warning["code"] == "NO_DIRECTION" and "lowest result counts as best (default of Small)" in warning["message"]
    path = f"{EXPERIMENTS}/{answer.json()['id']}"
    (world.code / "small.py").write_text(TUNER.replace("minimize", "maximize"))
    for request in (f"{path}/stop", f"{path}/resume", f"{path}/stop"):
        await api.post(request)
        found = (await api.get(path)).json()
        assert (found["optimizeMode"], found["directionNote"]) == ("minimize", "default of Small")
    assert found["warnings"] == [warning]
    [listed] = (await api.get(EXPERIMENTS)).json()["experiments"]
    assert (listed["optimizeMode"], listed["directionNote"]) == ("minimize", "default of Small")


async def test_unknown_direction_is_a_warning_of_older_experiments_too(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", tuner={"className": "mine.Mine"})
    found = (await api.get(f"{EXPERIMENTS}/seeded")).json()
    assert (found["optimizeMode"], found["directionNote"]) == ("maximize", "direction not set")
    assert [one["code"] for one in found["warnings"]] == ["NO_DIRECTION"]


async def test_warnings_of_the_daemon_join_them_while_they_hold(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    board = world.supervisor.shared.warnings
    at_work = world.supervisor.get(id_)
    assert at_work is not None
    with at_work.changes.watch() as news:
        news.clear()
        board.set(id_, ExperimentWarning(code="TRIAL_PORT_MOVED", message="it listens elsewhere"))
        await news.wait()
        found = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
        assert found == [{"code": "TRIAL_PORT_MOVED", "message": "it listens elsewhere"}]
        news.clear()
        board.clear(id_, "TRIAL_PORT_MOVED")
        await news.wait()
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"] == []


async def test_refused_file_reports_warnings_and_problems(api: httpx.AsyncClient, world: World) -> None:
    text = json.dumps(world.config(deprecated={}, trialConcurrency=0))
    refusal = (await api.post(EXPERIMENTS, json={"config": text, "file": "my.json"})).json()
    assert [problem["field"] for problem in refusal["problems"]] == ["trialConcurrency"]
    assert [(one["code"], one["field"], one["file"]) for one in refusal["warnings"]] == [
        ("NO_EFFECT", "deprecated", "my.json")
    ]


@pytest.mark.parametrize("arguments", [{"optimize_mode": "minimize"}, {}], ids=["said", "default"])
async def test_the_best_is_the_least_when_the_tuner_minimizes(
    api: httpx.AsyncClient, world: World, arguments: dict[str, str]
) -> None:
    tuner = {"name": "TPE", "classArgs": arguments}
    await world.add("seeded", tuner=tuner)
    best = (await api.get(f"{EXPERIMENTS}/seeded")).json()["best"]
    assert best["trialId"] == "good1", "an infinite result is never the best"


async def test_secrets_are_masked_and_search_space_names_are_not(api: httpx.AsyncClient, world: World) -> None:
    service = {"platform": "local", "machines": [{"sshPassphrase": "s3cret", "user": "ann", "sshKeyFile": "/k"}]}
    space = {"token": {"_type": "uniform", "_value": [0, 1]}}
    await world.add("seeded", searchSpace=space, canonical={"trainingService": service, "storageAccountKey": "s3cret"})
    answer = await api.get(f"{EXPERIMENTS}/seeded")
    assert "s3cret" not in answer.text
    config = answer.json()["config"]
    assert config["storageAccountKey"] == "******" and config["searchSpace"] == space
    machine = {"sshPassphrase": "******", "user": "ann", "sshKeyFile": "/k"}
    assert config["trainingService"]["machines"] == [machine]


async def test_the_list_is_by_age_and_can_be_filtered(api: httpx.AsyncClient, world: World) -> None:
    await world.add("older")
    await world.add("newer", status=ExperimentStatus.VIEWED)
    answer = await api.get(EXPERIMENTS)
    listed = ExperimentList.model_validate_json(answer.content).experiments
    assert [one.id for one in listed] == ["newer", "older"]  # created at the same time: by id
    filtered = (await api.get(EXPERIMENTS, params={"status": "STOPPED"})).json()["experiments"]
    assert [one["id"] for one in filtered] == ["older"]


@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"])
async def test_an_experiment_is_created_from_yaml(api: httpx.AsyncClient, world: World, kind: str) -> None:
    answer = await api.post(EXPERIMENTS, content=yaml.safe_dump(world.config()), headers={"Content-Type": kind})
    assert answer.status_code == 201, answer.text
    id_ = answer.json()["id"]
    assert answer.headers["Location"] == f"{EXPERIMENTS}/{id_}"
    assert (await api.get(answer.headers["Location"])).json()["status"] == "RUNNING"
    assert [one["id"] for one in (await api.get(EXPERIMENTS)).json()["experiments"]] == [id_]


async def test_a_wrapped_file_brings_its_callers_world(api: httpx.AsyncClient, world: World) -> None:
    (world.code / "space.json").write_text(json.dumps({"y": {"_type": "choice", "_value": [1, 2]}}))
    config = world.config(searchSpace=None, trialCodeDirectory=None, searchSpaceFile="space.json")
    body = {
        "config": yaml.safe_dump(config),
        "file": "my.yml",
        "directory": str(world.code),
        "environment": {"GREETING": "hello"},
        "interpreter": "/usr/bin/python3",
    }
    answer = await api.post(EXPERIMENTS, json=body)
    assert answer.status_code == 201, answer.text
    id_ = answer.json()["id"]
    described = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["config"]
    assert described["trialCodeDirectory"] == str(world.code) and list(described["searchSpace"]) == ["y"]
    interpreter = "SELECT interpreter FROM experiment"
    assert await world.commands.read(id_, lambda c: c.execute(interpreter).fetchone()) == ("/usr/bin/python3",)
    kept = private.load((await world.commands.entry(id_)).folder.private)
    assert kept.environment == {"GREETING": "hello"}


async def test_all_problems_of_a_file_are_named_with_their_lines(api: httpx.AsyncClient, world: World) -> None:
    text = yaml.safe_dump(world.config(trialConcurrency=0, maxTrialNumber="many"), sort_keys=True)
    answer = await api.post(EXPERIMENTS, json={"config": text, "file": "my.yml", "directory": str(world.code)})
    assert answer.status_code == 400
    problems = {problem["field"]: problem for problem in answer.json()["problems"]}
    assert set(problems) == {"trialConcurrency", "maxTrialNumber"}
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("trialConcurrency")]
    assert problems["trialConcurrency"]["file"] == "my.yml" and [problems["trialConcurrency"]["line"]] == lines
    assert "trialConcurrency" in answer.json()["error"]
    assert list(world.data.glob("*/db")) == []


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"a: [1\nb: 2", "application/yaml", ["config:2:", "YAML"]),
        (b"", "application/yaml", ["empty"]),
        (b"\xff\xfe\x00", "application/yaml", ["UTF-8"]),
        (b'{"a": ', "application/json", ["not JSON"]),
        (b"[" * 200_000, "application/json", ["nested"]),
        (b"[" * 5_000, "application/yaml", []),
        (b"[1, 2]", "application/json", ["mapping"]),
        (b"a: 1", "text/plain", ["content type", "text/plain"]),
        (b'{"config": 7}', "application/json", ["config", "string"]),
        (b'{"config": "a: 1", "directory": "relative"}', "application/json", ["directory", "absolute"]),
        (b'{"config": "a: 1", "environment": {"A": 1}}', "application/json", ["environment.A", "string"]),
        (b'{"config": "a: 1", "environment": {"A=B": "1"}}', "application/json", ["environment"]),
        (rb'{"config": "a: 1", "directory": "/tmp/\udcff"}', "application/json", ["directory", r"'\udcff'"]),
        (rb'{"config": "a: 1", "file": "\udcff/e.yml"}', "application/json", ["file", r"'\udcff'"]),
        (rb'{"config": "a: 1", "environment": {"A": "\ud800"}}', "application/json", ["environment", r"'\ud800'"]),
        (rb'{"config": "a: 1", "\ud800": 1}', "application/json", ["unicode"]),
        (b'{"config": "a: 1", "interpeter": "/usr/bin/python3"}', "application/json", ["interpeter"]),
    ],
)
async def test_invalid_experiment_file_is_refused_in_a_sentence(
    api: httpx.AsyncClient, content: bytes, kind: str, words: list[str]
) -> None:
    answer = await api.post(EXPERIMENTS, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 400, answer.text
    assert all(word in answer.json()["error"] for word in words), answer.text


async def test_a_name_that_no_text_can_hold_is_refused(api: httpx.AsyncClient, world: World) -> None:
    body = json.dumps(world.config(experimentName="\ud800"))
    answer = await api.post(EXPERIMENTS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    id_ = await create(api, world)
    body = r'{"experimentName": "\ud800"}'
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and "experimentName" in answer.json()["error"]


async def test_a_change_takes_the_names_that_a_new_experiment_may_have(api: httpx.AsyncClient, world: World) -> None:
    for name in ("two\nlines", "a\u200bb"):
        answer = await api.post(EXPERIMENTS, json=world.config(experimentName=name))
        changed = await api.patch(f"{EXPERIMENTS}/{answer.json()['id']}", json={"experimentName": f"{name}!"})
        assert (changed.status_code, changed.json()["name"]) == (200, f"{name}!")


async def test_stored_lone_surrogate_does_not_break_answers(api: httpx.AsyncClient, world: World) -> None:
    """Earlier versions accepted it, and tuners may send it."""
    space = {"x\ud800": {"_type": "choice", "_value": ["\ud800"]}}
    await world.add("old", canonical={"searchSpace": space})
    answer = await api.get(f"{EXPERIMENTS}/old")
    assert answer.status_code == 200
    assert answer.json()["config"]["searchSpace"] == {"x\ud800": {"_type": "choice", "_value": ["\ud800"]}}
    assert (await api.get(f"{EXPERIMENTS}/old/events")).status_code == 200
    assert (await api.get("/experiments/old/api/v1/nni/experiment")).status_code == 200


async def test_half_a_character_of_the_best_trial_breaks_no_list(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("half")
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        (record,) = connection.execute("SELECT record FROM trials WHERE id = 'good1'").fetchone()
        odd = json.dumps({**json.loads(record), "parameters": {"f": "\ud800"}})
        connection.execute("UPDATE trials SET record = ? WHERE id = 'good1'", (odd,))
    entry = index.read_folder(folder)
    await world.supervisor.index.write(lambda c: index.put(c, entry))
    listed = await api.get(EXPERIMENTS)
    assert listed.status_code == 200 and listed.json()["experiments"][0]["best"]["parameters"]["f"] == "\ud800"
    for answer in (
        await api.post(f"{EXPERIMENTS}/view", json={"id": "half"}),
        await api.post(f"{EXPERIMENTS}/half/stop"),
        await api.post(f"{EXPERIMENTS}/half/resume"),
        await api.post(f"{EXPERIMENTS}/half/stop"),
    ):
        assert answer.status_code == 200, answer.text


def test_answer_with_lone_surrogate_has_no_nan() -> None:
    best = Best(trial_id="abcde", value=float("inf"), parameters={"\ud800": [float("nan"), 1]})
    assert json.loads(best.json_text()) == {"trialId": "abcde", "value": None, "parameters": {"\ud800": [None, 1]}}


async def test_folder_name_without_utf8_makes_no_experiment(api: httpx.AsyncClient, world: World) -> None:
    folder = world.code / "\udcff"
    folder.mkdir()
    (world.code / "link").symlink_to(folder)
    body = {"config": json.dumps(world.config(trialCodeDirectory=".")), "directory": str(world.code / "link")}
    answer = await api.post(EXPERIMENTS, json=body)
    assert answer.status_code == 400 and "trialCodeDirectory: holds" in answer.json()["error"]
    assert list(world.data.glob("*/db")) == []
    view = rb'{"id": "none", "workingDirectory": "/\ud800"}'
    answer = await api.post(f"{EXPERIMENTS}/view", content=view, headers=_JSON)
    assert answer.status_code == 400 and "workingDirectory" in answer.json()["error"]


async def test_limits_change_and_null_takes_them_away(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    change = {"trialConcurrency": 4, "maxTrialNumber": None, "maxTrialDuration": "10m", "experimentName": "renamed"}
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", json=change)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert {name: found[name] for name in ("trialConcurrency", "maxTrialNumber", "maxTrialDuration", "name")} == {
        "trialConcurrency": 4,
        "maxTrialNumber": None,
        "maxTrialDuration": "10m",
        "name": "renamed",
    }
    of_its_moment = {name: found[name] for name in ("execDurationMs", "services")}
    assert found == (await api.get(f"{EXPERIMENTS}/{id_}")).json() | of_its_moment
    assert (await api.get(EXPERIMENTS)).json()["experiments"][0]["name"] == "renamed"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trialConcurrency": "four"}, "trialConcurrency"),
        ({"trialConcurrency": 0}, "trialConcurrency"),
        ({"trialConcurrency": 30_000_000}, "trialConcurrency"),
        ({"trialConcurrency": None}, "trialConcurrency"),
        ({"maxTrialNumber": [1]}, "maxTrialNumber"),
        ({"maxExperimentDuration": "soon"}, "maxExperimentDuration"),
        ({"maxTrialDuration": {"s": 1}}, "maxTrialDuration"),
        ({"searchSpace": 7}, "searchSpace"),
        ({"experimentName": 7}, "experimentName"),
        ({"trialCommand": "rm"}, "trialCommand"),
        ({"searchSpace": {"x": {"_type": "choice", "_value": ["\ud800"]}}}, r"searchSpace: holds '\ud800'"),
        ({"\ud800": 1}, "unicode"),
        ([1], "object"),
        ("text", "JSON"),
    ],
)
async def test_a_wrong_change_names_its_field_and_changes_nothing(
    api: httpx.AsyncClient, world: World, change: Any, field: str
) -> None:
    id_ = await create(api, world)
    before = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["config"]
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", content=json.dumps(change), headers=_JSON)
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["error"]
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["config"] == before


@pytest.mark.parametrize(
    ("limits", "change", "goes_on"),
    [
        ({"maxTrialNumber": 5}, {}, False),
        ({"maxTrialNumber": 5}, {"experimentName": "renamed"}, False),
        ({"maxTrialNumber": 5}, {"maxTrialNumber": 3}, False),
        ({"maxTrialNumber": 5}, {"trialConcurrency": 4}, False),
        ({"maxTrialNumber": 5}, {"maxExperimentDuration": "2h"}, False),
        ({"maxTrialNumber": 5}, {"maxTrialNumber": 6}, True),
        ({"maxTrialNumber": 5}, {"maxTrialNumber": None}, True),
        ({"maxExperimentDuration": "1s"}, {"maxExperimentDuration": "2h"}, True),
        ({"maxTrialNumber": 9}, {"maxTrialNumber": 10}, False),  # its tuner had nothing more
        ({"maxTrialNumber": 9}, {"searchSpace": {"y": {"_type": "uniform", "_value": [0, 1]}}}, True),
    ],
)
async def test_done_experiment_resumes_only_with_work_left(
    api: httpx.AsyncClient, world: World, limits: dict[str, Any], change: dict[str, Any], goes_on: bool
) -> None:
    id_ = await create(api, world, **{"maxTrialNumber": None, **limits})
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    await experiment.database.write(_end_after_five)
    before = (await api.get(f"{EXPERIMENTS}/{id_}")).json()
    assert before["status"] == "DONE"
    assert before["endedMs"] == before["createdMs"], "nothing ends before it began"
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", json=change)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"] != "DONE", answer.json()["endedMs"]) == (
        goes_on,
        None if goes_on else before["endedMs"],
    )


def _end_after_five(connection: Connection) -> None:
    connection.execute("UPDATE experiment SET next_sequence_id = 5, exec_ms = 5000")
    experiments.set_status(connection, ExperimentStatus.DONE, 5)


async def test_stop_resume_delete(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    assert (await api.delete(f"{EXPERIMENTS}/{id_}")).status_code == 409
    stopped = await api.post(f"{EXPERIMENTS}/{id_}/stop")
    assert (stopped.status_code, stopped.json()["status"]) == (200, "STOPPED")
    assert (await api.post(f"{EXPERIMENTS}/{id_}/stop")).json()["status"] == "STOPPED"
    refused = await api.patch(f"{EXPERIMENTS}/{id_}", json={"trialConcurrency": 3})
    assert refused.status_code == 409 and "resume" in refused.json()["error"]
    assert (await api.post(f"{EXPERIMENTS}/{id_}/resume")).json()["status"] == "RUNNING"
    assert (await api.post(f"{EXPERIMENTS}/stop")).json() == {"stopped": [id_]}
    viewed = await api.post(f"{EXPERIMENTS}/view", json={"id": id_})
    assert (viewed.status_code, viewed.json()["status"]) == (200, "VIEWED")
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["status"] == "VIEWED"
    assert (await api.patch(f"{EXPERIMENTS}/{id_}", json={"trialConcurrency": 3})).status_code == 409
    assert (await api.post(f"{EXPERIMENTS}/{id_}/stop")).json()["status"] == "STOPPED"
    deleted = await api.delete(f"{EXPERIMENTS}/{id_}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).status_code == 404
    assert not (world.data / id_).exists()


async def test_a_hold_is_shown_with_its_details_and_resume_clears_it(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        experiment.loop.inbox.put_on_hold(
            Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised", details="Traceback")
        )
        while (found := (await api.get(f"{EXPERIMENTS}/{id_}")).json())["hold"] is None:
            await news.wait()
            news.clear()
    assert found["hold"] == {"code": "TUNER_RAISED", "sentence": "the tuner raised", "details": "Traceback"}
    assert found["errors"] == ["the tuner raised"]
    assert (await api.get(EXPERIMENTS)).json()["experiments"][0]["hold"] == found["hold"]
    resumed = await api.post(f"{EXPERIMENTS}/{id_}/resume")
    assert resumed.json()["hold"] is None


async def test_results_from_elsewhere_are_stored(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    data = [
        {"parameter": {"x": 0.5}, "value": 0.9, "id": "from-an-export"},
        {"parameter": {"x": 1}, "value": {"default": 2}},
    ]
    assert (await api.post(f"{EXPERIMENTS}/{id_}/import", json=data)).status_code == 204
    stored = await world.commands.read(id_, lambda c: c.execute("SELECT data FROM imports").fetchone()[0])
    assert json.loads(stored) == data, "as they came"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('[{"value": 1}]', "[0].parameter"),
        ('[{"parameter": 7, "value": 1}]', "[0].parameter"),
        ('[{"parameter": {}}]', "[0].value"),
        ('{"parameter": {}, "value": 1}', "list"),
        ('[{"parameter": {}, "value": 1}, {"parameter": {"x": Infinity}, "value": 1}]', "[1]: NaN and infinity"),
        ('[{"parameter": {}, "value": NaN}]', "[0]: NaN and infinity"),
        (r'[{"parameter": {}, "value": 1}, {"parameter": {"x": "\ud800"}, "value": 1}]', r"[1]: holds '\ud800'"),
        ("[", "not JSON"),
    ],
)
async def test_results_that_cannot_be_used_are_refused(
    api: httpx.AsyncClient, world: World, body: str, words: str
) -> None:
    id_ = await create(api, world)
    headers = {"Content-Type": "application/json"}
    answer = await api.post(f"{EXPERIMENTS}/{id_}/import", content=body, headers=headers)
    assert answer.status_code == 400 and words in answer.json()["error"], answer.text


async def test_a_tuner_may_complain_in_halves_of_characters(api: httpx.AsyncClient, world: World) -> None:
    hold = Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised \ud800", details="Traceback \udcff")
    id_ = await create(api, world)
    at_work = world.supervisor.get(id_)
    assert at_work is not None
    await at_work.database.write(lambda c: experiments.set_hold(c, hold))
    found = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["hold"]
    assert (found["sentence"], found["details"]) == (r"the tuner raised \ud800", r"Traceback \udcff")


async def test_experiment_with_a_deep_tree_is_deleted(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    with deep_tree_at(folder.trials / "good1" / "deep", 1200):
        deleted = await api.delete(f"{EXPERIMENTS}/seeded")
        assert deleted.status_code == 204
        assert not folder.path.exists()


async def test_undeleted_files_are_logged_and_removed_later(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = await world.add("seeded")
    monkeypatch.setattr(removal, "remove", lambda path: [f"{path} stays"])
    assert (await api.delete(f"{EXPERIMENTS}/seeded")).status_code == 204
    assert (await api.get(f"{EXPERIMENTS}/seeded")).status_code == 404
    assert [id_ for id_, _ in await world.supervisor.index.read(index.leftovers)] == ["seeded"]
    assert "experiment seeded is deleted, but files remain" in caplog.text
    assert f"{folder.path}/log stays" in caplog.text


async def test_moved_trial_listener_is_a_warning_in_the_answer(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = world.supervisor.shared
    monkeypatch.setattr(MemoryPlatform, "capabilities", replace(MemoryPlatform.capabilities, has_runner=True))

    async def open_elsewhere(experiment_id: str) -> None:
        await asyncio.sleep(0.01)
        shared.warnings.set(experiment_id, ExperimentWarning(code="TRIAL_PORT_MOVED", message="it is elsewhere"))

    monkeypatch.setattr(shared.trial_listener, "open", open_elsewhere)
    answer = await api.post(EXPERIMENTS, json=world.config())
    warned = [{"code": "TRIAL_PORT_MOVED", "message": "it is elsewhere"}]
    assert (answer.status_code, answer.json()["warnings"]) == (201, warned)
    assert (await api.get(f"{EXPERIMENTS}/{answer.json()['id']}")).json()["warnings"] == warned


async def test_a_trial_listener_that_cannot_be_opened_refuses_nothing(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryPlatform, "capabilities", replace(MemoryPlatform.capabilities, has_runner=True))

    async def refuse(experiment_id: str) -> None:
        raise PlatformUnavailable("the port is in use", refused=True)

    monkeypatch.setattr(world.supervisor.shared.trial_listener, "open", refuse)
    assert (await api.post(EXPERIMENTS, json=world.config())).status_code == 201


async def test_data_directory_is_not_default_code_directory(api: httpx.AsyncClient, world: World) -> None:
    for code in ({"trialCodeDirectory": "."}, {"trialCodeDirectory": None}):
        config = {name: value for name, value in {**world.config(), **code}.items() if value is not None}
        answer = await api.post(EXPERIMENTS, json=config)
        assert answer.status_code == 400 and "set it, or give an absolute path" in answer.json()["error"]
        body = {"config": json.dumps(config), "directory": str(world.code)}
        assert (await api.post(EXPERIMENTS, json=body)).status_code == 201


async def test_an_id_of_the_callers_choice_is_taken_once(api: httpx.AsyncClient, world: World) -> None:
    config = json.dumps(world.config())
    answer = await api.post(EXPERIMENTS, json={"config": config, "id": "My_own-1"})
    assert (answer.status_code, answer.json()["id"]) == (201, "My_own-1")
    again = await api.post(EXPERIMENTS, json={"config": config, "id": "My_own-1"})
    assert again.status_code == 409 and "choose another id" in again.text
    for wrong in ("events", "a/b", "x" * 33):
        refused = await api.post(EXPERIMENTS, json={"config": config, "id": wrong})
        assert refused.status_code == 400 and "id" in refused.text, wrong


async def test_chosen_id_accepts_only_logs_of_nni_launcher(api: httpx.AsyncClient, world: World) -> None:
    config = world.config()
    parent = world.data
    for id_, name, status in (("launched", "experiment.log", 201), ("foreign", "thesis.txt", 409)):
        (parent / id_ / "log").mkdir(parents=True)
        (parent / id_ / "log" / name).write_text("mine")
        answer = await api.post(EXPERIMENTS, json={"config": json.dumps(config), "id": id_})
        assert answer.status_code == status, answer.text
        assert (parent / id_ / "log" / name).read_text() == "mine"
