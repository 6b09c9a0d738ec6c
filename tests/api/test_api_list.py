"""The list of experiments: pages, filters, summaries of results, refused queries."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from tests.api.world import World

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"


async def ids(api: httpx.AsyncClient, query: str) -> list[str]:
    answer = await api.get(f"{EXPERIMENTS}?{query}")
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["experiments"]]


@pytest.fixture
async def three(api: httpx.AsyncClient, world: World) -> str:
    """Two that are closed, `first` and `second`, and the id of one that is open."""
    await world.add("first", experimentName="Digits")
    await world.add("second", experimentName="mnist", status=ExperimentStatus.VIEWED)
    return str((await api.post(EXPERIMENTS, json=world.config(experimentName="digits again"))).json()["id"])


async def test_pages(api: httpx.AsyncClient, world: World, three: str) -> None:
    everything = ["first", "second", three]
    assert await ids(api, "") == everything
    assert await ids(api, "limit=2") == everything[:2] and await ids(api, "limit=2&offset=2") == [three]
    assert await ids(api, "order=-created&limit=2") == everything[:0:-1]
    assert (await api.get(f"{EXPERIMENTS}?limit=1&offset=9")).json() == {"total": 3, "experiments": []}
    for query in ("limit=0", "limit=x", "offset=-1", "order=name", "status=NOPE", "hold=perhaps"):
        assert (await api.get(f"{EXPERIMENTS}?{query}")).status_code == 400, query


async def test_filters(api: httpx.AsyncClient, world: World, three: str) -> None:
    assert await ids(api, "status=VIEWED&status=STOPPED") == ["first", "second"]
    assert await ids(api, "name=DIGITS") == ["first", three] and await ids(api, f"name={three}") == [three]
    assert await ids(api, "platform=local&status=RUNNING") == [three] and await ids(api, "platform=loc") == []
    assert await ids(api, "hold=true") == [] and len(await ids(api, "hold=false")) == 3
    experiment = world.supervisor.get(three)
    assert experiment is not None
    experiment.loop.inbox.put_on_hold(Hold(code=HoldCode.INTERNAL, sentence="it is broken"))
    experiment.loop.wake()
    with experiment.changes.watch() as news:
        while await ids(api, "hold=true") != [three]:
            await news.wait()
            news.clear()


async def test_list_summary_of_results(api: httpx.AsyncClient, world: World, three: str) -> None:
    listed = {one["id"]: one for one in (await api.get(EXPERIMENTS)).json()["experiments"]}
    for id_, one in listed.items():
        shown = (await api.get(f"{EXPERIMENTS}/{id_}")).json()
        names = ("counts", "trialsMade", "maxTrialNumber", "optimizeMode", "best")
        assert {name: one[name] for name in names} == {name: shown[name] for name in names}, id_
    assert listed["first"]["best"]["value"] == 0.875 and listed["first"]["counts"]["SUCCEEDED"] == 3


@pytest.mark.parametrize(
    "place",
    [
        "",
        "/first",
        "/first/trials",
        "/first/metrics",
        "/first/events",
        "/events",
        "/first/trials/good1",
        "/first/logs/nnimanager.log",
    ],
)
async def test_unknown_query_parameter_is_refused(api: httpx.AsyncClient, world: World, place: str) -> None:
    await world.add("first")
    answer = await api.get(f"{EXPERIMENTS}{place}?statsu=DONE&limt=3")
    assert answer.status_code == 400 and answer.json()["error"].startswith("limt: "), answer.text


async def test_refusal_names_known_parameters(api: httpx.AsyncClient, world: World) -> None:
    await world.add("first")
    error = (await api.get(f"{EXPERIMENTS}/first/trials?state=DONE")).json()["error"]
    assert error == (f"state: unknown query parameter of {EXPERIMENTS}/first/trials; use limit, offset, order, status")
    assert (await api.post(f"{EXPERIMENTS}/stop?now=1")).status_code == 400


@pytest.mark.parametrize(
    "place",
    [
        "/metrics?collect[]=x",
        "/healthz?x=1",
        f"{EXPERIMENTS}?token=x",
        "/experiments/first/api/v1/nni/trial-jobs?x=1",
    ],
)
async def test_prometheus_may_send_any_parameter(api: httpx.AsyncClient, world: World, place: str) -> None:
    await world.add("first")
    assert (await api.get(place)).status_code == 200


# Export


async def test_parameters_and_results_in_one_call(api: httpx.AsyncClient, world: World) -> None:
    await world.add("first")
    exported: list[dict[str, Any]] = (await api.get(f"{EXPERIMENTS}/first/export")).json()
    trials = (await api.get(f"{EXPERIMENTS}/first/trials?status=SUCCEEDED&limit=1000")).json()["trials"]
    assert exported == [
        {"parameter": one["parameters"], "value": one["finalResult"], "trialJobId": one["id"]}
        for one in trials
        if one["finalResult"] is not None
    ]
    whole = (await api.get(f"{EXPERIMENTS}/first/export?intermediate=true")).json()
    assert whole[0]["intermediate"] == ["0.5", "0.75", "0.875"] and len(whole) == len(exported)


async def test_export_can_be_imported(api: httpx.AsyncClient, world: World, three: str) -> None:
    exported = (await api.get(f"{EXPERIMENTS}/first/export")).json()
    assert (await api.post(f"{EXPERIMENTS}/{three}/import", json=exported)).status_code == 204
