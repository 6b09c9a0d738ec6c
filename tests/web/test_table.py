"""The table of trials: forms and addresses, downloads, ticked rows, comparison, logs, limits."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3

import httpx
import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.web import formats, shown_experiments
from nni_manager.web.manager_log import LogQuery
from nni_manager.web.table import page_query, trial_table
from nni_manager.web.table.page_query import PageQuery, canonical
from tests.api.world import World
from tests.web.test_pages import create, get

pytestmark = pytest.mark.unit


def test_form_fields_become_a_canonical_address() -> None:
    sent = [
        ("status", "FAILED"),
        ("status", "WAITING"),
        ("low:p.a,b", "1e-3"),
        ("high:p.a,b", ""),
        ("q", " "),
        ("back", "x"),
    ]
    sent += [("p.kind", "a"), ("p.kind", '"b,c"'), ("tick", "3"), ("tick", "17"), ("page", "1"), ("high:m.loss", "2")]
    assert dict(canonical(sent)) == {
        "status": "FAILED,WAITING",
        "p.a,b": "1e-3..",
        "p.kind": 'a,"b,c"',
        "selected": "3,17",
        "m.loss": "..2",
    }
    query = PageQuery.parse(sent)
    assert query.query.selected == (3, 17) and canonical(query.pairs.items()) == list(query.pairs.items())
    assert query.string(status=None) == query.string(status="")


def test_choices_keep_their_type_in_the_address() -> None:
    choices = ["conv", "1", "true", "a,b", "1..2", "", 1, True, None, [8, 4]]
    written = [page_query.as_choice(choice) for choice in choices]
    assert written == ["conv", '"1"', '"true"', '"a,b"', '"1..2"', '""', "1", "true", "null", "[8, 4]"]


def test_columns_have_the_order_of_the_address() -> None:
    known = {
        "parameters": [{"name": "x", "kind": "number"}, {"name": "y", "kind": "choice"}],
        "keys": [{"name": "default"}],
        "key": "default",
    }
    listed = trial_table.columns_of(PageQuery.parse([("columns", "p.y,result,gone,status,p.x")]), known)
    assert [one.name for one in listed if one.is_shown] == ["number", "p.y", "result", "status", "p.x"]
    assert [one.name for one in listed][:7] == ["number", "p.y", "result", "status", "p.x", "id", "latest"]


def test_filter_without_a_box_gets_one() -> None:
    kind = {"name": "kind", "kind": "choice", "choices": ["a", "b"], "others": 3, "observed": {}}
    rate = {"name": "rate", "kind": "number", "choices": None, "others": 0, "observed": {}}
    query = PageQuery.parse([("p.kind", "b,c"), ("p.rate", "1,2")])
    of_kind, of_rate = page_query.fields(query, {"parameters": [kind, rate], "keys": []})
    assert [(one.value, one.is_chosen) for one in of_kind.choices] == [("a", False), ("b", True), ("c", True)]
    assert [(one.value, one.is_chosen) for one in of_rate.choices] == [("1", True), ("2", True)]


def test_curve_is_scaled_to_its_sparkline() -> None:
    assert formats.spark_points([]) == formats.spark_points([1.0]) == ""
    assert formats.spark_points([0, 5, "NaN", 10]) == "2.0,16.0 36.0,9.0 70.0,2.0"
    assert formats.spark_points([3, 3]) == "2.0,9.0 70.0,9.0"


def test_rate_needs_several_ends_and_falls_without_new_ones() -> None:
    assert shown_experiments.per_minute([60_000, 0], 60_000) is None
    assert shown_experiments.per_minute([120_000, 60_000, 0], 120_000) == 1.0
    assert shown_experiments.per_minute([120_000, 60_000, 0], 240_000) == 0.5


async def test_filtered_trials_are_downloaded(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded", extra_trials=3)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        record = json.dumps({"parameters": {"x": "=1+2", "y": -5}})
        connection.execute("UPDATE trials SET record = ? WHERE id = 'fails'", (record,))
    answer = await visitor.get("/experiments/seeded/trials.csv?status=FAILED,WAITING&sort=number")
    assert answer.headers["content-disposition"] == 'attachment; filename="seeded-trials.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["number"], row["status"]) for row in rows] == [("3", "FAILED"), ("4", "WAITING")]
    assert rows[0]["p.x"] == "'=1+2" and rows[0]["p.y"] == "-5", "a spreadsheet computes nothing"
    everything = (await visitor.get("/experiments/seeded/trials.json?sort=number")).json()
    assert [trial["number"] for trial in everything] == list(range(8))
    assert everything[1]["result"] == "NaN" and "startedMs" in everything[0]
    assert "curve" not in everything[0]
    curved = (await visitor.get("/experiments/seeded/trials.json?sort=number&curves=1")).json()
    assert [trial["curve"] for trial in curved[:4]] == [[0.5, 0.75], ["NaN"], [], []]
    assert {trial["status"] for trial in curved} == {"SUCCEEDED", "FAILED", "WAITING"}
    assert (await visitor.get("/experiments/seeded/trials.json?q=nothing")).json() == []
    assert (await visitor.get("/experiments/seeded/trials.xml")).status_code == 404


async def test_ticked_trials_are_killed_together(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    for value in (1, 2, 3):
        await visitor.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": value}})
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        answer = await visitor.post(f"/experiments/{id_}/kill", data={"tick": ["0", "2"], "back": "trials?sort=number"})
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/experiments/{id_}/trials?sort=number")
        while (await get(visitor, f"/experiments/{id_}/trials")).text.count(
            "USER_CANCELED"
        ) < 3:  # three more, with the one in the filter
            await news.wait()
            news.clear()
    trials = (await visitor.get(f"/api/v1/experiments/{id_}/trials")).json()["trials"]
    assert [trial["status"] == "USER_CANCELED" for trial in trials] == [True, False, True]
    page = await visitor.post(f"/experiments/{id_}/kill", data={})
    assert page.status_code == 400 and "no trials are ticked" in page.text


async def test_compared_trials_show_what_differs_first(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    ticked = await visitor.get("/experiments/seeded/compare?tick=0&tick=3&tick=99")
    assert (ticked.status_code, ticked.headers["Location"]) == (302, "/experiments/seeded/compare?selected=0%2C3%2C99")
    some = (await get(visitor, ticked.headers["Location"])).text
    assert "good1" in some and "fails" in some and "absent" in some and "identical rows are hidden" in some
    assert "attempts" not in some
    everything = (await get(visitor, "/experiments/seeded/compare?selected=0,3&all=1")).text
    assert everything.index("layers") < everything.index("attempts")
    assert "A comparison needs two trials" in (await get(visitor, "/experiments/seeded/compare?selected=0")).text


async def test_logs_are_filtered_by_level_and_text(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    lines = [
        "[2026-11-20 10:00:00] INFO (turn) a trial began",
        "[2026-11-20 10:00:01] ERROR (turn) the tuner raised <b>",
        "Traceback (most recent call last):",
        "[2026-11-20 10:00:02] WARNING (turn) slow",
    ]
    (folder.log / "nnimanager.log").write_text("\n".join(lines) + "\n")
    page = (await get(visitor, "/experiments/seeded/log?level=ERROR")).text
    assert "the tuner raised <b>" in page and "Traceback" in page and "slow" not in page and "began" not in page
    assert "The last 1 of 1 lines" in (await get(visitor, "/experiments/seeded/log?q=SLOW")).text
    assert (
        "dispatcher.log does not exist yet" in (await get(visitor, "/experiments/seeded/log?file=dispatcher.log")).text
    )
    for query in ("file=../x", "level=LOUD", "lines=7"):
        assert (await visitor.get(f"/experiments/seeded/log?{query}")).status_code == 400
    with pytest.raises(InvalidInput, match="level: must be one of"):
        LogQuery.parse({"level": "LOUD"})


async def test_limits_are_checked_then_shown_then_changed(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    now = {"maxTrialNumber": "10", "maxExperimentDuration": "", "trialConcurrency": "2"}
    for wrong in ({"maxTrialNumber": "many"}, {"trialConcurrency": "0"}, {"maxExperimentDuration": "soon"}):
        answer = await visitor.post(f"/experiments/{id_}/edit", data={**now, **wrong})
        assert answer.status_code == 400 and next(iter(wrong)) in answer.text, wrong
    new = {**now, "maxTrialNumber": "20", "maxExperimentDuration": "2h"}
    asked = await visitor.post(f"/experiments/{id_}/edit", data=new)
    assert "<td>10</td><td>20</td>" in asked.text and "<td>no limit</td><td>2h</td>" in asked.text
    assert (await visitor.get(f"/api/v1/experiments/{id_}")).json()["maxTrialNumber"] == 10
    assert (await visitor.post(f"/experiments/{id_}/edit", data={**new, "sure": "1"})).status_code == 303
    state = (await visitor.get(f"/api/v1/experiments/{id_}")).json()
    assert (state["maxTrialNumber"], state["maxExperimentDuration"]) == (20, "2h")


async def test_config_is_shown_and_downloaded_without_secrets(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", canonical={"accessToken": "hush"})
    page = (await get(visitor, "/experiments/seeded/config")).text
    assert "tuner.classArgs.seed" in page and "accessToken ******" in page and "hush" not in page
    assert "uniform 0 … 1" in page and "0.25 … 1" in page, "observed values"
    file = await visitor.get("/experiments/seeded/config.json")
    assert file.json()["accessToken"] == "******" and file.json()["searchSpace"]


async def test_stream_of_a_closed_experiment_sends_one_state(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await visitor.get("/experiments/seeded/stream")
    kind, data = answer.text.strip().split("\n")
    state = json.loads(data.removeprefix("data: "))
    assert (kind, state["closed"], state["counts"]["SUCCEEDED"]) == ("event: state", True, 3)
    assert state["best"]["value"] == 0.875 and state["waiting"]["trials"] == 1
    assert (await visitor.get("/experiments/unknown1/stream")).status_code == 404
