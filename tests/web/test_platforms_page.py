"""Training services on their page and in the API: use of GPUs, adding and draining machines, replacing secrets."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from nni_manager.api.nni.addressed import EXPERIMENT
from nni_manager.store import private
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.services import EXPERIMENTS, add_trial, shown
from tests.api.world import World
from tests.web import gpu_service
from tests.web.test_pages import create, get

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def on_machines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_service.install(monkeypatch)


async def two_experiments(visitor: httpx.AsyncClient, world: World) -> tuple[str, str, str]:
    """Two experiments on hostA, one of them also on hostB, and the trial on GPU 0 of hostA."""
    first = await create(world, visitor, experimentName="one", trainingService=gpu_service.section("hostA"))
    second = await create(world, visitor, experimentName="two", trainingService=gpu_service.section("hostA", "hostB"))
    for id_ in (first, second):
        await shown(visitor, id_, lambda one: [service["status"] for service in one["services"]] == ["up"])
    trial = await add_trial(visitor, first)
    gpu_service.occupy(world, first, trial)
    return first, second, trial


async def test_each_gpu_shows_its_use(visitor: httpx.AsyncClient, world: World) -> None:
    first, second, trial = await two_experiments(visitor, world)
    page = await get(visitor, "/platforms")
    for words in (
        f"0 ● ours trial {trial} of one , 3 GiB",
        "1 ✓ free",
        "2 ◌ others pid 4242 of user kim, 11 GiB",
        "3 ✕ cannot be used GPU is lost",
        "no driver answers",
        "1 trial on 16 processors",
        "Waiting for GPUs one (remote): 2 each, on hostA",
    ):
        assert words in page.text, words
    assert page.text.count("me@hostA:22") == 1, "a machine of two experiments is there once"
    links = page.values("a", "href")
    assert f"/experiments/{first}/trials/{trial}" in links and f"/experiments/{second}/credentials" in links


async def test_api_agrees_with_the_page(visitor: httpx.AsyncClient, world: World) -> None:
    first, second, trial = await two_experiments(visitor, world)
    answer = (await visitor.get("/api/v1/platforms")).json()
    [service] = answer["services"]
    assert [(use["experiment"], use["service"]["status"]) for use in service["uses"]] == [(first, "up"), (second, "up")]
    host_a, host_b = service["machines"]
    assert [[one["trial"] for one in gpu["trials"]] for gpu in host_a["gpus"]] == [[trial], [], [], []]
    assert host_a["gpus"][2]["processes"] == [{"pid": 4242, "user": "kim", "memoryBytes": 11 * gpu_service.GIB}]
    assert (host_b["gpus"], host_b["gpuTrouble"]) == ([], "no driver answers")
    assert answer["line"] == [{"experiment": first, "service": "remote", "machines": ["hostA"], "places": 2}]


async def test_machine_is_drained_for_all_and_used_again(visitor: httpx.AsyncClient, world: World) -> None:
    first, second, _ = await two_experiments(visitor, world)
    fields = {"platform": "remote", "machine": gpu_service.FIRST}
    for drain, expected in (("1", [True, True]), ("0", [False, False])):
        assert (await visitor.post("/platforms/drain", data={**fields, "drain": drain})).status_code == 303
        assert [await machine(visitor, id_, 0, "drain") for id_ in (first, second)] == expected
    assert await machine(visitor, second, 1, "drain") in (False, None)


async def machine(visitor: httpx.AsyncClient, id_: str, number: int, field: str) -> object:
    config = (await visitor.get(f"{EXPERIMENTS}/{id_}")).json()["config"]
    return config["trainingService"]["machineList"][number].get(field)


async def test_machine_is_added_only_where_it_is_missing(visitor: httpx.AsyncClient, world: World) -> None:
    first, second, _ = await two_experiments(visitor, world)
    fields = {"platform": "remote", "host": "hostB", "user": "me", "port": "", "password": "s3cret too"}
    answer = await visitor.post("/platforms/machines", data=fields)
    assert answer.status_code == 303, answer.text
    assert await machine(visitor, first, 1, "host") == "hostB" and await machine(visitor, first, 0, "host") == "hostA"
    await shown(visitor, first, lambda one: [service["status"] for service in one["services"]] == ["up"])
    page = await get(visitor, "/platforms")
    assert "me@hostB:22" in page.text
    config = (await visitor.get(f"{EXPERIMENTS}/{second}")).json()["config"]
    assert len(config["trainingService"]["machineList"]) == 2, "it had that machine already"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host": "", "user": "me"}, "host and user: must not be empty"),
        ({"host": "x", "user": "me", "port": "many"}, "port: must be a number"),
        ({"host": "x", "user": "me", "sshKeyFile": "/nowhere/key"}, "cannot find file /nowhere/key"),
        ({"host": "hostA", "user": "me"}, "no open experiment has a remote service that this changes"),
    ],
)
async def test_invalid_machine_is_refused_with_a_reason(
    visitor: httpx.AsyncClient, world: World, fields: dict[str, str], words: str
) -> None:
    await create(world, visitor, trainingService=gpu_service.section("hostA"))
    answer = await visitor.post("/platforms/machines", data={"platform": "remote", **fields})
    assert answer.status_code == 400 and words in answer.text


async def test_secrets_are_replaced_and_never_shown(visitor: httpx.AsyncClient, world: World) -> None:
    first, _, _ = await two_experiments(visitor, world)
    page = await get(visitor, f"/experiments/{first}/credentials")
    [name] = [one for one in page.values("input", "name") if one.startswith("secret:")]
    assert (await visitor.post(f"/experiments/{first}/credentials", data={name: ""})).status_code == 400
    answer = await visitor.post(f"/experiments/{first}/credentials", data={name: "n3w secret"})
    assert answer.status_code == 303
    experiment = world.commands.at_work(first)
    assert experiment is not None
    kept = await asyncio.to_thread(private.load, experiment.folder.private)
    assert list(kept.secrets.values()) == ["n3w secret"]
    for path in ("/platforms", f"/experiments/{first}/credentials"):
        shown_text = (await visitor.get(path)).text
        assert "n3w" not in shown_text and "s3cret" not in shown_text


async def test_secrets_form_on_an_endpoint_returns_to_the_experiment(world: World) -> None:
    """An endpoint has no platforms page."""
    pages = create_pages(PagesContext(commands=world.commands, version="1", analysis=world.analysis))

    async def own_port(scope: Scope, receive: Receive, send: Send) -> None:
        await pages({**scope, "state": {**scope.get("state", {}), EXPERIMENT: id_}}, receive, send)

    id_ = ""
    async with world.calling() as anywhere, world.calling(own_port) as visitor:
        id_ = await create(world, anywhere, trainingService=gpu_service.section("hostA"))
        path, leads_to = f"/experiments/{id_}/credentials", f"/experiments/{id_}"
        page = await get(visitor, path)
        assert leads_to in page.values("a", "href") and "/platforms" not in page.values("a", "href")
        [name] = [one for one in page.values("input", "name") if one.startswith("secret:")]
        answer = await visitor.post(path, data={name: "n3w secret"})
        assert (answer.status_code, answer.headers["Location"]) == (303, leads_to)
        assert (await visitor.get(leads_to)).status_code == 200


async def test_page_without_open_experiments_has_a_message(visitor: httpx.AsyncClient) -> None:
    assert "no training service is in use" in (await get(visitor, "/platforms")).text
    assert (await visitor.get("/api/v1/platforms")).json() == {"services": [], "line": []}
