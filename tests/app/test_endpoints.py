"""Endpoints over real sockets: opened, refused, replaced, closed, and restored."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.app.listening.endpoints import EndpointParts, EndpointSockets
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve
from nni_manager.config.settings import Settings
from nni_manager.domain.endpoint import DEFAULT_PORT, Endpoint, EndpointWish
from nni_manager.domain.errors import AlreadyOwned, Conflict, InvalidInput
from tests.app.foreign_port import free_port, listening

pytestmark = pytest.mark.unit


def says(name: str) -> ASGIApp:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        text = f"{name} {scope.get('state', {}).get('nni_experiment')} {scope['root_path']} {scope['path']}"
        await PlainTextResponse(text)(scope, receive, send)

    return application


def parts(guarded: Callable[[ASGIApp], ASGIApp] = lambda app: app) -> EndpointParts:
    return EndpointParts(nni=says("nni"), api=says("api"), pages=says("page"), guarded=guarded)


@asynccontextmanager
async def opened(
    data: Path, *, allowed: bool = True, **settings: object
) -> AsyncIterator[tuple[EndpointSockets, Listeners]]:
    """A daemon's listeners, without the daemon."""
    listeners = Listeners(says("service"))
    endpoints = EndpointSockets(Settings(data_dir=data, **settings), allowed=allowed)  # type: ignore[arg-type]
    endpoints.bind(listeners, parts())
    yield endpoints, listeners
    await endpoints.end()
    await listeners.close()


async def answer_at(url: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, url)


async def test_each_endpoint_serves_its_experiment(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        first = await endpoints.open("one", EndpointWish(port=0))
        second = await endpoints.open("two", EndpointWish(port=0, prefix="my/pre"))
        assert first is not None and second is not None and endpoints.first_port == first.port
        assert [(listener.kind, listener.port) for listener in listeners.open] == [
            ("endpoint", first.port),
            ("endpoint", second.port),
        ]
        assert endpoints.url(second) == f"http://127.0.0.1:{second.port}/my/pre/"
        assert (await answer_at(endpoints.url(first))).text == "page one  /experiments/one"
        assert (await answer_at(f"{endpoints.url(second)}api/v1/nni/x")).text == "nni two  /api/v1/nni/x"


async def test_closed_endpoint_frees_its_port_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, _), httpx.AsyncClient(trust_env=False) as client:
        first, second = (
            await endpoints.open("one", EndpointWish(port=0)),
            await endpoints.open("two", EndpointWish(port=0)),
        )
        assert first is not None and second is not None
        for endpoint in (first, second):
            await client.get(endpoints.url(endpoint))
        await endpoints.close("one")
        await endpoints.close("one")
        with socket.create_server(("127.0.0.1", first.port)):
            pass
        with pytest.raises(httpx.ConnectError):
            await answer_at(endpoints.url(first))
        assert (await client.get(endpoints.url(second))).text.startswith("page two")
        assert await endpoints.open("three", EndpointWish(port=first.port)) == first


async def test_a_stream_does_not_outlive_its_view(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    listeners, endpoints = Listeners(says("service")), EndpointSockets(Settings(data_dir=tmp_path), allowed=True)
    endpoints.bind(listeners, EndpointParts(nni=stream, api=stream, pages=stream, guarded=lambda app: app))
    endpoint = await endpoints.open("one", EndpointWish(port=0))
    assert endpoint is not None
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", endpoints.url(endpoint)) as response:
        assert await anext(response.aiter_bytes()) == b"first\n"
        await endpoints.close("one")
        async with asyncio.timeout(20):
            await ended.wait()
    await listeners.close()


async def test_busy_port_names_its_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        with listening() as port:
            with pytest.raises(AlreadyOwned, match=rf"port {port} is in use by process {os.getpid()} .*--port"):
                await endpoints.open("one", EndpointWish(port=port))
        endpoint = await endpoints.open("one", EndpointWish(port=0))
        assert endpoint is not None
        with pytest.raises(
            AlreadyOwned, match=rf"port {endpoint.port} is in use by the endpoint of experiment one; choose"
        ):
            await endpoints.open("two", EndpointWish(port=endpoint.port))
        service = reserve("127.0.0.1", 0)
        await listeners.open_port("service", service)
        with pytest.raises(AlreadyOwned, match=rf"port {service.port} is in use by this daemon's service; choose"):
            await endpoints.open("two", EndpointWish(port=service.port))
        assert len(listeners.open) == 2


async def test_no_endpoint_port_needed_with_a_service(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        await listeners.open_port("service", reserve("127.0.0.1", 0))
        assert await endpoints.open("one", EndpointWish()) is None
        assert await endpoints.open("two", EndpointWish(port=0)) is not None, "somebody asked for it"
        assert await endpoints.open("three", EndpointWish(prefix="x")) is not None


async def test_no_endpoint_with_no_listen(tmp_path: Path) -> None:
    async with opened(tmp_path, allowed=False) as (endpoints, listeners):
        assert await endpoints.open("one", EndpointWish()) is None
        with pytest.raises(Conflict, match="started with --no-listen and opens no port; start it without"):
            await endpoints.open("one", EndpointWish(port=0))
        assert listeners.open == ()


async def test_default_port_is_8080_or_next_free(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, _):
        found = [await endpoints.open(id, EndpointWish()) for id in ("one", "two")]
        ports = [endpoint.port for endpoint in found if endpoint is not None]
        assert len(set(ports)) == 2 and DEFAULT_PORT <= min(ports) and max(ports) < DEFAULT_PORT + 200


async def test_settings_or_the_caller_say_the_first_port(tmp_path: Path) -> None:
    async with opened(tmp_path, port=(mine := free_port())) as (endpoints, _):
        one = await endpoints.open("one", EndpointWish())
        two = await endpoints.open("two", EndpointWish())
        three = await endpoints.open("three", EndpointWish(first=(other := free_port())))
        assert one is not None and two is not None and three is not None
        assert one.port == mine < two.port < mine + 200 and three.port == other
        any_free = await endpoints.open("four", EndpointWish(first=0))
        assert any_free is not None and any_free.port not in (0, 8080)


async def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    async with opened(tmp_path, host="0.0.0.0") as (endpoints, listeners):
        with pytest.raises(InvalidInput, match=r"--host 0\.0\.0\.0 can be reached by others: set NNI_MANAGER_TOKEN"):
            await endpoints.open("one", EndpointWish(port=0))
        assert listeners.open == ()
    async with opened(tmp_path, host="0.0.0.0", token="s3cret" * 3) as (endpoints, _):
        endpoint = await endpoints.open("one", EndpointWish(port=0))
        assert endpoint is not None and endpoints.url(endpoint) == f"http://127.0.0.1:{endpoint.port}/"


async def test_another_prefix_or_port_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        first = await endpoints.open("one", EndpointWish(port=0))
        assert first is not None
        same = await endpoints.open("one", EndpointWish(port=first.port, prefix="x"))
        assert same == Endpoint(port=first.port, prefix="x") and len(listeners.open) == 1
        assert (await answer_at(f"http://127.0.0.1:{first.port}/")).status_code == 404
        with listening() as port, pytest.raises(AlreadyOwned):
            await endpoints.open("one", EndpointWish(port=port))
        assert (await answer_at(endpoints.url(same))).status_code == 200, "the old one is kept without a new one"
        other = await endpoints.open("one", EndpointWish(port=0))
        assert other is not None and [listener.port for listener in listeners.open] == [other.port] != [first.port]


# ----------------------------------------------------------------------------------------------------------- restoring


async def test_a_recorded_view_is_opened_again(tmp_path: Path) -> None:
    endpoint = Endpoint(port=free_port(), prefix="x")
    async with opened(tmp_path) as (endpoints, _):
        endpoints.restore("one", endpoint)
        await endpoints.tried()
        assert (await answer_at(endpoints.url(endpoint))).status_code == 200 and endpoints.problem("one") == ""


async def test_a_recorded_port_that_is_busy_is_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.app.listening.endpoints._AGAIN_S", 0.01)
    async with opened(tmp_path) as (endpoints, listeners):
        with listening() as port:
            endpoints.restore("one", Endpoint(port=port))
            await endpoints.tried()
            assert endpoints.problem("one").startswith(
                f"its endpoint cannot be reopened: port {port} is in use by process"
            )
            assert endpoints.problem("one").endswith("; it is tried again") and listeners.open == ()
        async with asyncio.timeout(20):
            while endpoints.problem("one"):  # noqa: ASYNC110 (ports have no events)
                await asyncio.sleep(0.01)
        assert [listener.port for listener in listeners.open] == [port]


async def test_refused_endpoint_does_not_end_the_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refused request for another port the recorded one is still restored."""
    monkeypatch.setattr("nni_manager.app.listening.endpoints._AGAIN_S", 0.01)
    async with opened(tmp_path) as (endpoints, listeners):
        with listening() as port, listening() as other:
            endpoints.restore("one", Endpoint(port=port))
            await endpoints.tried()
            with pytest.raises(AlreadyOwned):
                await endpoints.open("one", EndpointWish(port=other))
            assert f"port {port} is in use" in endpoints.problem("one")
        async with asyncio.timeout(20):
            while endpoints.problem("one"):  # noqa: ASYNC110 (ports have no events)
                await asyncio.sleep(0.01)
        assert [listener.port for listener in listeners.open] == [port]


async def test_another_endpoint_ends_the_retries(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        with listening() as port:
            endpoints.restore("one", Endpoint(port=port))
            await endpoints.tried()
            endpoint = await endpoints.open("one", EndpointWish(port=0))
            assert endpoint is not None and endpoints.problem("one") == "" and not endpoints._restoring
        assert [listener.port for listener in listeners.open] == [endpoint.port]


async def test_a_port_that_cannot_be_served_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nni_manager.app.listening.endpoints._AGAIN_S", 0.01)
    endpoint = Endpoint(port=free_port())
    async with opened(tmp_path) as (endpoints, listeners):
        served = listeners._add

        async def refuse(_: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(listeners, "_add", refuse)
        endpoints.restore("one", endpoint)
        await endpoints.tried()
        assert "Too many open files" in endpoints.problem("one") and listeners.open == ()
        monkeypatch.setattr(listeners, "_add", served)
        async with asyncio.timeout(20):
            while endpoints.problem("one"):  # noqa: ASYNC110 (ports have no events)
                await asyncio.sleep(0.01)
        assert (await answer_at(endpoints.url(endpoint))).status_code == 200


async def test_closing_ends_the_retries(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, listeners):
        with listening() as port:
            endpoints.restore("one", Endpoint(port=port))
            await endpoints.tried()
            await endpoints.close("one")
            assert endpoints.problem("one") == ""
        assert listeners.open == () and not endpoints._restoring


async def test_nothing_waits_for_listeners_that_are_not_there_yet(tmp_path: Path) -> None:
    listeners, endpoints = Listeners(says("service")), EndpointSockets(Settings(data_dir=tmp_path), allowed=True)
    endpoints.restore("one", endpoint := Endpoint(port=free_port()))
    opening = asyncio.ensure_future(endpoints.open("two", EndpointWish(port=0)))
    await asyncio.sleep(0)
    endpoints.bind(listeners, parts())
    await endpoints.tried()
    assert await opening is not None and (await answer_at(endpoints.url(endpoint))).status_code == 200
    await endpoints.end()
    await listeners.close()


# ------------------------------------------------------------------------------------------------------------- routes


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", "page one {root} {root}/experiments/one"),
        ("POST", "/experiments/one/stop", "page one {root} {root}/experiments/one/stop"),
        ("GET", "/static/page.js", "page one {root} {root}/static/page.js"),
        ("GET", "/api/v1/nni/check-status", "nni one  /api/v1/nni/check-status"),
        ("PUT", "/api/v1/nni/experiment", "nni one  /api/v1/nni/experiment"),
        ("GET", "/logs/nnimanager.log", "nni one  /logs/nnimanager.log"),
        ("GET", "/api/v1/experiments/one/events", "api one {root} {root}/api/v1/experiments/one/events"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "my/pre", "api", "experiments/one"])
async def test_routes_of_an_endpoint(tmp_path: Path, prefix: str, method: str, path: str, expected: str) -> None:
    async with opened(tmp_path) as (endpoints, _):
        endpoint = await endpoints.open("one", EndpointWish(port=0, prefix=prefix))
        assert endpoint is not None
        root = endpoint.path.rstrip("/")
        answer = await answer_at(f"http://127.0.0.1:{endpoint.port}{root}{path}", method)
        assert answer.text == expected.format(root=root)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/experiments"),
        ("GET", "/experiments/two"),
        ("GET", "/experiments/onetwo"),
        ("GET", "/nothing"),
        ("GET", "/api/v1/experiments"),
        ("GET", "/api/v1/experiments/two/events"),
        ("GET", "/api/v1/nnix"),
        ("POST", "/api/v1/experiments/one/stop"),
        ("DELETE", "/api/v1/experiments/one"),
        ("GET", "/api/v1/daemon"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("POST", "/oview"),
        ("GET", "//"),
    ],
)
async def test_other_routes_are_not_found(tmp_path: Path, method: str, path: str) -> None:
    async with opened(tmp_path) as (endpoints, _):
        endpoint = await endpoints.open("one", EndpointWish(port=0))
        assert endpoint is not None
        answer = await answer_at(f"http://127.0.0.1:{endpoint.port}{path}", method)
        assert answer.status_code == 404 and answer.json()["error"].startswith("there is nothing at ")


async def test_outside_of_the_prefix(tmp_path: Path) -> None:
    async with opened(tmp_path) as (endpoints, _):
        endpoint = await endpoints.open("one", EndpointWish(port=0, prefix="my/pre"))
        assert endpoint is not None
        base = f"http://127.0.0.1:{endpoint.port}"
        for method, path in (("GET", "/"), ("GET", "/my"), ("PUT", "/my/prefix"), ("POST", "/my/pre")):
            answer = await answer_at(base + path, method)
            assert (answer.status_code, answer.text) == (404, 'Outside prefix "/my/pre"')
        answer = await answer_at(f"{base}/my/pre?order=final")
        assert (answer.status_code, answer.headers["location"]) == (301, "/my/pre/?order=final")
        answer = await answer_at(f"{base}/my/pre/oview")
        assert (answer.status_code, answer.headers["location"]) == (307, "/my/pre/")


async def test_guard_checks_every_path(tmp_path: Path) -> None:
    def closed(_: ASGIApp) -> ASGIApp:
        return says("guard")

    listeners, endpoints = Listeners(says("service")), EndpointSockets(Settings(data_dir=tmp_path), allowed=True)
    endpoints.bind(listeners, parts(closed))
    endpoint = await endpoints.open("one", EndpointWish(port=0, prefix="my/pre"))
    assert endpoint is not None
    for path in ("/", "/my/pre/", "/my/pre/api/v1/nni/x"):
        assert (await answer_at(f"http://127.0.0.1:{endpoint.port}{path}")).text.startswith("guard ")
    await listeners.close()
