"""Every method against the real API over a real Unix socket, and the errors of refused calls."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from asyncio import to_thread
from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.api.application import create_application
from nni_manager.client import manager_client
from nni_manager.client.address import Address
from nni_manager.client.connection import AccessRefused, Answer, NobodyListens, Request, Unreachable, _error_of
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import (
    ConfigInvalid,
    Conflict,
    Ending,
    InvalidInput,
    NniManagerError,
    NotFound,
    StoreUnavailable,
)
from tests.api.listeners import tcp_listener
from tests.api.world import World

pytestmark = pytest.mark.acceptance


async def create(client: ManagerClient, world: World, **fields: object) -> str:
    config = json.dumps(world.config(**fields))
    return await to_thread(client.create, config, directory=str(world.code), environment={"A": "1"})


async def test_experiments_from_create_to_delete(client: ManagerClient, world: World) -> None:
    id_ = await create(client, world)
    assert [one["id"] for one in await to_thread(client.experiments)] == [id_]
    assert await to_thread(client.experiments, "STOPPED") == []
    changed = await to_thread(client.change, id_, {"trialConcurrency": 5, "maxTrialNumber": None})
    assert (changed["trialConcurrency"], changed["maxTrialNumber"]) == (5, None)
    assert (await to_thread(client.experiment, id_))["trialConcurrency"] == 5
    await to_thread(client.import_data, id_, [{"parameter": {"x": 1}, "value": 0.5}])
    assert (await to_thread(client.stop, id_))["status"] == "STOPPED"
    assert (await to_thread(client.resume, id_))["status"] == "RUNNING"
    assert await to_thread(client.stop_all) == [id_]
    await to_thread(client.delete, id_)
    with pytest.raises(NotFound, match=id_):
        await to_thread(client.experiment, id_)


def test_create_waits_until_the_code_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the call would time out, and the experiment would start all the same."""
    waits: list[float | None] = []

    def answer(_: Address, request: Request) -> Answer:
        waits.append(request.timeout_s)
        return Answer(headers={}, body=b'{"id": "a"}')

    monkeypatch.setattr(manager_client, "exchange", answer)
    assert ManagerClient(Address(socket="nowhere")).create("{}", directory="/", environment={}) == "a"
    assert waits == [600.0]


async def test_trials_and_results(client: ManagerClient, world: World) -> None:
    await world.add("seeded", extra_trials=3)
    page = await to_thread(client.trials, "seeded", status="SUCCEEDED", order="-final", limit=2)
    assert page["total"] == 6 and len(page["trials"]) == 2
    everything = await to_thread(lambda: list(client.all_trials("seeded")))
    assert [trial["sequenceId"] for trial in everything] == list(range(8))
    assert (await to_thread(client.trial, "seeded", "fails"))["attempts"][0]["exitCode"] == 1
    finals = await to_thread(lambda: client.metrics("seeded", trial="good1", type="FINAL"))
    assert [metric["result"] for metric in finals] == ["0.875"]
    id_ = await create(client, world)
    added = await to_thread(client.add_trial, id_, {"x": 1})
    assert added["sequenceId"] == 0
    await to_thread(client.kill_trial, id_, added["id"])


async def test_all_trials_come_in_pages(client: ManagerClient, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nni_manager.client.manager_client._PAGE", 2)
    await world.add("seeded")
    everything = await to_thread(lambda: [trial["id"] for trial in client.all_trials("seeded")])
    assert everything == ["good1", "nannn", "infin", "fails", "waits"]


async def test_logs(client: ManagerClient, world: World) -> None:
    await world.add("seeded")
    part = await to_thread(lambda: client.trial_log("seeded", "good1", "stdout", offset=-4, limit=3))
    assert (part.data, part.offset, part.size, part.end) == (b"678", 6, 10, 9)
    assert (await to_thread(client.experiment_log, "seeded", "nnimanager.log")).data == b"one\ntwo\n"
    with pytest.raises(NotFound):
        await to_thread(client.trial_log, "seeded", "good1", "../stdout")


async def test_states_come_until_the_experiment_is_stopped(client: ManagerClient, world: World) -> None:
    id_ = await create(client, world)
    seen: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def follow() -> None:
        for state in client.events(id_):
            loop.call_soon_threadsafe(seen.put_nowait, state)

    async with asyncio.TaskGroup() as group:
        group.create_task(to_thread(follow))
        assert (await seen.get())["status"] == "RUNNING"
        await to_thread(client.stop, id_)
    states = [seen.get_nowait() for _ in range(seen.qsize())]
    assert states[-1]["status"] == "STOPPED" and "config" not in states[-1]


async def test_the_daemon(client: ManagerClient, world: World) -> None:
    assert (await to_thread(client.daemon))["version"] == "1.2.3"
    await to_thread(lambda: client.stop_daemon(experiments=True))
    assert world.daemon_stops == [True]
    await world.lose_index()
    with pytest.raises(StoreUnavailable, match=r"index\.sqlite cannot be opened"):
        await to_thread(client.experiments)


async def test_refusals_are_domain_errors(client: ManagerClient, world: World) -> None:
    id_ = await create(client, world)

    async def refused(call: Callable[..., object], *arguments: object, kind: type[Exception]) -> Exception:
        with pytest.raises(kind) as caught:
            await to_thread(call, *arguments)
        assert type(caught.value) is kind
        return caught.value

    await refused(client.delete, id_, kind=Conflict)
    await refused(client.change, id_, {"trialCommand": "x"}, kind=InvalidInput)
    await refused(client.experiment, "../../daemon", kind=NotFound)
    await refused(client.trials, "unknown1", kind=NotFound)
    invalid = await refused(lambda: asyncio.run(create(client, world, trialConcurrency=0)), kind=ConfigInvalid)
    assert isinstance(invalid, ConfigInvalid)
    (problem,) = invalid.problems
    assert problem.field == "trialConcurrency" and problem.line == 1 and "trialConcurrency" in str(invalid)


async def test_a_listener_with_a_token(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # not looked at
    async with tcp_listener(create_application(world.context, token="s3cret")) as address:
        with pytest.raises(AccessRefused, match="token"):
            await to_thread(ManagerClient(address).experiments)
        client = ManagerClient(Address(port=address.port, token="s3cret"))
        assert await to_thread(client.experiments) == []
    assert "s3cret" not in repr(client.address) + str(client.address)


async def test_unreachable_daemon(client: ManagerClient) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(Unreachable, match="is it running"):
            await to_thread(ManagerClient(Address(socket=f"{folder}/nothing")).daemon)


async def test_what_a_daemon_did_not_do_is_asked_of_the_next(client: ManagerClient, world: World) -> None:
    found: list[type[Exception]] = []

    def again(error: NniManagerError) -> Address:
        found.append(type(error))
        world.supervisor.is_ending = False
        return client.address

    id_ = await create(ManagerClient(Address(socket="/nowhere/control.sock"), again), world)
    world.supervisor.is_ending = True
    other = await create(ManagerClient(client.address, again), world)
    assert found == [NobodyListens, Ending]
    assert {one["id"] for one in await to_thread(client.experiments)} == {id_, other}
    world.supervisor.is_ending = True
    with pytest.raises(Ending, match="try again in a moment"):
        await create(client, world)


def test_a_silent_daemon_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ManagerClient(Address(port=silent.getsockname()[1]))
        with pytest.raises(Unreachable, match="did not answer in time"):
            client._call("GET", "/healthz", timeout_s=0.05)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"detail": 1}'])
def test_an_answer_without_a_sentence_is_still_an_error(body: bytes) -> None:
    error = _error_of(500, body)
    assert type(error) is NniManagerError and "status 500" in str(error)


@pytest.mark.parametrize("says_size", [True, False])
async def test_a_huge_body_is_refused_while_it_is_sent(world: World, says_size: bool) -> None:
    """60 MB over TCP: the server reads and discards the rest, so that the sender gets the refusal."""
    import http.client

    def send(port: int) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        size = 60 * 2**20
        headers = {"Content-Type": "application/json"} | ({"Content-Length": str(size)} if says_size else {})
        parts = (b" " * 2**20 for _ in range(60))
        connection.request("POST", "/api/v1/experiments", parts, headers, encode_chunked=not says_size)
        answer = connection.getresponse()
        result = answer.status, answer.read()
        connection.close()
        return result

    async with tcp_listener(create_application(world.context)) as address:
        status, body = await to_thread(send, address.port)
    assert status == 413 and "8 MB" in json.loads(body)["error"]


def test_importing_it_is_cheap() -> None:
    """Every command imports it."""
    import subprocess

    code = "import sys, nni_manager.client.manager_client; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "fastapi", "pydantic", "yaml", "asyncio"} & set(loaded)
