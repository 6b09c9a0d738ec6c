"""`/metrics`: format, content and cost."""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nni_manager.api import metrics
from nni_manager.api.application import create_application
from nni_manager.api.runners import trial_listener
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.experiments.runner_reports import RunnerReports
from nni_manager.scheduler.turns.trial_listener import RunnerTokens
from nni_manager.store import migrate
from nni_manager.store.experiment import trial_reads
from nni_manager.store.experiment.trial_reads import TrialTally
from tests.api.world import World

pytestmark = pytest.mark.unit

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """The text as parsed by Prometheus' library; no sample may occur twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown", family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


async def scrape(api: httpx.AsyncClient) -> Samples:
    answer = await api.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.text)


# The format


def test_a_family_without_samples_is_left_out() -> None:
    assert metrics.text([metrics.gauges("some", "Some.", ["a"], [])]) == b""


# The content


async def test_names_and_kinds_keep_the_rules(api: httpx.AsyncClient) -> None:
    text = (await api.get("/metrics")).text
    kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    assert len(kinds) == text.count("# HELP") > 15
    for name, kind in kinds.items():
        assert name.startswith(("nni_manager_", "process_")), name
        assert name.endswith("_total") == (kind == "counter"), name


async def test_experiments_and_trials_are_counted(world: World, api: httpx.AsyncClient) -> None:
    await world.add("seeded", status=ExperimentStatus.DONE)
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    added = await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})
    samples = await scrape(api)
    assert value(samples, "nni_manager_experiments", status="DONE") == 1
    assert value(samples, "nni_manager_experiments", status="RUNNING") == 1
    assert value(samples, "nni_manager_experiments", status="ERROR") == 0
    trials = {status: value(samples, "nni_manager_trials", experiment=id_, status=status) for status in TrialStatus}
    assert sum(trials.values()) == trials["WAITING"] + trials["RUNNING"] == 1
    await api.post(f"/api/v1/experiments/{id_}/trials/{added.json()['id']}/kill")
    await world.supervisor.find(id_).loop.turn()
    while value(samples, "nni_manager_trials", experiment=id_, status="USER_CANCELED") == 0:
        samples = await scrape(api)
    assert value(samples, "nni_manager_trials", experiment=id_, status="USER_CANCELED") == 1
    assert value(samples, "nni_manager_trials", experiment=id_, status="RUNNING") == 0
    assert value(samples, "nni_manager_loop_turn_seconds_count") > 0
    assert value(samples, "nni_manager_store_commit_seconds_sum") > 0


async def test_only_open_experiments_have_labels(world: World, api: httpx.AsyncClient) -> None:
    await world.add("seeded")
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    assert {dict(labels)["experiment"] for name, labels in await scrape(api) if name == "nni_manager_trials"} == {id_}
    await api.post(f"/api/v1/experiments/{id_}/stop")
    assert not [name for name, _ in await scrape(api) if name == "nni_manager_trials"]


async def test_the_oldest_of_many_are_left_out(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_EXPERIMENTS", 2)
    ids = [(await api.post("/api/v1/experiments", json=world.config())).json()["id"] for _ in range(3)]
    shown = {dict(labels)["experiment"] for name, labels in await scrape(api) if name == "nni_manager_trials"}
    assert shown == set(ids[1:])


async def test_holds_are_counted_by_code(world: World, api: httpx.AsyncClient) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    assert value(await scrape(api), "nni_manager_experiments_on_hold", code="TUNER_RAISED") == 0
    loop = world.supervisor.find(id_).loop
    loop.inbox.put_on_hold(Hold(code=HoldCode.TUNER_RAISED, sentence="it raised"))
    await loop.turn()
    assert value(await scrape(api), "nni_manager_experiments_on_hold", code="TUNER_RAISED") == 1


async def test_a_database_in_trouble_is_seen(world: World, api: httpx.AsyncClient) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    assert value(await scrape(api), "nni_manager_stores_in_trouble") == 0
    experiment = world.supervisor.find(id_)
    database = experiment.database
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other, experiment.changes.watch() as changed:
        other.execute("BEGIN IMMEDIATE")
        database.post(lambda connection: None)
        while not database.trouble:
            await changed.wait()
            changed.clear()
        samples = await scrape(api)
    assert value(samples, "nni_manager_stores_in_trouble") == 1
    assert value(samples, "nni_manager_experiments_on_hold", code="STORE_UNAVAILABLE") == 1


async def test_unreadable_metrics_are_left_out(world: World, api: httpx.AsyncClient) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    for database in (world.supervisor.find(id_).database, world.supervisor.index):
        database._readers.close()
        database.path = database._readers._path = Path("/nowhere/at/all")
    samples = await scrape(api)
    assert not [name for name, _ in samples if name in ("nni_manager_trials", "nni_manager_experiments")]
    assert value(samples, "nni_manager_uptime_seconds") > 0


async def test_the_process_and_its_listeners(world: World, api: httpx.AsyncClient) -> None:
    world.context.loop_lag.note(1.5)
    samples = await scrape(api)
    (build,) = [dict(labels) for name, labels in samples if name == "nni_manager_build_info"]
    assert build["version"] == "1.2.3"
    assert value(samples, "nni_manager_open_listeners", kind="control") == 1
    assert value(samples, "nni_manager_keeper_needed") == value(samples, "nni_manager_keeper_up") == 0
    assert value(samples, "process_resident_memory_bytes") > 1e6
    assert value(samples, "process_cpu_seconds_total") > 0
    assert abs(value(samples, "process_start_time_seconds") - time.time()) < 1e6


async def test_lag_is_shown(world: World) -> None:
    context = world.context
    application = create_application(context)
    for late_s in (-0.001, 0.25, 0.125):
        context.loop_lag.note(late_s)
    async with world.calling(application) as client:
        samples = await scrape(client)
    assert value(samples, "nni_manager_event_loop_lag_seconds_count") == 3
    assert value(samples, "nni_manager_event_loop_lag_seconds_sum") == 0.375
    assert value(samples, "nni_manager_event_loop_lag_worst_seconds") == 0.25


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "taken"),
        (204, "taken"),
        (400, "refused"),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (404, "refused"),
        (409, "version_refused"),
        (410, "over"),
        (413, "refused"),
        (429, "busy"),
        (500, "failed"),
        (503, "unavailable"),
    ],
)
def test_every_answer_to_a_runner_has_an_outcome(status: int, outcome: str) -> None:
    assert trial_listener.outcome(status) == outcome
    assert outcome in trial_listener.OUTCOMES


async def test_posts_of_runners_are_counted(api: httpx.AsyncClient, world: World) -> None:
    before = value(await scrape(api), "nni_manager_trial_posts_total", outcome="unauthorized")
    reports = RunnerReports(world.supervisor, RunnerTokens(b"secret"), "0.6.0")
    async with world.calling(trial_listener.TrialListener(reports)) as runner:
        await runner.post("/trial/v1/a/b/1/metrics", json={})
    assert value(await scrape(api), "nni_manager_trial_posts_total", outcome="unauthorized") == before + 1


# Access


async def test_metrics_need_the_token(world: World) -> None:
    application = create_application(world.context, token="correct horse")
    async with world.calling(application) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"Authorization": "Bearer correct horse"})).status_code == 200


# The cost


def test_ends_are_counted_once(tmp_path: Path) -> None:
    """Counted rows are not read again: the second count uses an index and finds only new rows."""
    path = tmp_path / "nni.sqlite"
    migrate.migrate(path, "experiment")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _fill(connection, 1, 2_000)
        first = trial_reads.tally(connection, TrialTally())
        assert (first.told, first.by_status["SUCCEEDED"], first.by_status["RUNNING"]) == (2_000, 2_000, 1)
        _fill(connection, 2_001, 2_003)
        steps = Counter[str]()
        connection.set_progress_handler(lambda: steps.update(["some"]), 100)
        second = trial_reads.tally(connection, first)
        connection.set_progress_handler(None, 0)
    assert (second.told, second.by_status["SUCCEEDED"], second.by_status["RUNNING"]) == (2_003, 2_003, 1)
    assert sum(second.by_status.values()) == 2_004
    assert steps["some"] < 20  # thousands of virtual machine instructions would be a scan


def _fill(connection: sqlite3.Connection, first: int, last: int) -> None:
    columns = "id, sequence_id, status, record, created_ms, end_order"
    rows = [(f"t{n:04}", n, "SUCCEEDED", "{}", 1, n) for n in range(first, last + 1)]
    rows += [("alive", 0, "RUNNING", "{}", 1, None)] if first == 1 else []
    connection.executemany(f"INSERT INTO trials ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    if first == 1:
        connection.execute(
            "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, counted_ms)"
            " VALUES ('a', 'RUNNING', '{}', '', '', 1, 1)"
        )


# The documentation


async def test_metrics_on_the_page_of_operations_exist(api: httpx.AsyncClient) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    named = set(re.findall(r"(nni_manager_\w+)", page))
    text = (await api.get("/metrics")).text
    shown = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) | {"nni_manager_trials"}  # none is open here
    assert named and named <= shown
