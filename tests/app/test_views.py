"""Views over real sockets: opened, named when they cannot be, exchanged, closed, and found again."""

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

from nni_manager.app.endpoint_application import ViewParts
from nni_manager.app.endpoints import Views
from nni_manager.app.listeners import Listeners
from nni_manager.app.ports import reserve
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


def parts(guarded: Callable[[ASGIApp], ASGIApp] = lambda app: app) -> ViewParts:
    return ViewParts(nni=says("nni"), api=says("api"), pages=says("page"), guarded=guarded)


@asynccontextmanager
async def opened(data: Path, *, allowed: bool = True, **settings: object) -> AsyncIterator[tuple[Views, Listeners]]:
    """A daemon's listeners, without the daemon."""
    listeners = Listeners(says("service"))
    views = Views(Settings(data_dir=data, **settings), allowed=allowed)  # type: ignore[arg-type]
    views.bind(listeners, parts())
    yield views, listeners
    await views.end()
    await listeners.close()


async def answer_at(url: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, url)


async def test_each_has_its_own_experiment(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        first = await views.open("one", EndpointWish(port=0))
        second = await views.open("two", EndpointWish(port=0, prefix="my/pre"))
        assert first is not None and second is not None and views.first_port == first.port
        assert [(listener.kind, listener.port) for listener in listeners.open] == [
            ("view", first.port),
            ("view", second.port),
        ]
        assert views.url(second) == f"http://127.0.0.1:{second.port}/my/pre/"
        assert (await answer_at(views.url(first))).text == "page one  /experiments/one"
        assert (await answer_at(f"{views.url(second)}api/v1/nni/x")).text == "nni two  /api/v1/nni/x"


async def test_one_is_closed_and_its_port_is_free_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, _), httpx.AsyncClient(trust_env=False) as client:
        first, second = await views.open("one", EndpointWish(port=0)), await views.open("two", EndpointWish(port=0))
        assert first is not None and second is not None
        for view in (first, second):
            await client.get(views.url(view))
        await views.close("one")
        await views.close("one")
        with socket.create_server(("127.0.0.1", first.port)):
            pass
        with pytest.raises(httpx.ConnectError):
            await answer_at(views.url(first))
        assert (await client.get(views.url(second))).text.startswith("page two")
        assert await views.open("three", EndpointWish(port=first.port)) == first


async def test_a_stream_does_not_outlive_its_view(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    listeners, views = Listeners(says("service")), Views(Settings(data_dir=tmp_path), allowed=True)
    views.bind(listeners, ViewParts(nni=stream, api=stream, pages=stream, guarded=lambda app: app))
    view = await views.open("one", EndpointWish(port=0))
    assert view is not None
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", views.url(view)) as response:
        assert await anext(response.aiter_bytes()) == b"first\n"
        await views.close("one")
        async with asyncio.timeout(20):
            await ended.wait()
    await listeners.close()


async def test_a_port_that_somebody_has_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        with listening() as port:
            with pytest.raises(AlreadyOwned, match=rf"port {port} is in use by process {os.getpid()} .*--port"):
                await views.open("one", EndpointWish(port=port))
        view = await views.open("one", EndpointWish(port=0))
        assert view is not None
        with pytest.raises(AlreadyOwned, match=rf"port {view.port} is in use by the view of experiment one; choose"):
            await views.open("two", EndpointWish(port=view.port))
        service = reserve("127.0.0.1", 0)
        await listeners.open_service(service)
        with pytest.raises(AlreadyOwned, match=rf"port {service.port} is in use by this daemon's service; choose"):
            await views.open("two", EndpointWish(port=service.port))
        assert len(listeners.open) == 2


async def test_where_a_service_is_no_port_is_needed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        await listeners.open_service(reserve("127.0.0.1", 0))
        assert await views.open("one", EndpointWish()) is None
        assert await views.open("two", EndpointWish(port=0)) is not None, "somebody asked for it"
        assert await views.open("three", EndpointWish(prefix="x")) is not None


async def test_where_nothing_is_to_listen(tmp_path: Path) -> None:
    async with opened(tmp_path, allowed=False) as (views, listeners):
        assert await views.open("one", EndpointWish()) is None
        with pytest.raises(Conflict, match="started with --no-listen and opens no port: start it without"):
            await views.open("one", EndpointWish(port=0))
        assert listeners.open == ()


async def test_without_a_wish_it_is_nni_s_port_or_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, _):
        found = [await views.open(id, EndpointWish()) for id in ("one", "two")]
        ports = [view.port for view in found if view is not None]
        assert DEFAULT_PORT <= ports[0] < ports[1] < DEFAULT_PORT + 200


async def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    async with opened(tmp_path, host="0.0.0.0") as (views, listeners):
        with pytest.raises(InvalidInput, match=r"--host 0\.0\.0\.0 can be reached by others: set NNI_MANAGER_TOKEN"):
            await views.open("one", EndpointWish(port=0))
        assert listeners.open == ()
    async with opened(tmp_path, host="0.0.0.0", token="s3cret" * 3) as (views, _):
        view = await views.open("one", EndpointWish(port=0))
        assert view is not None and views.url(view) == f"http://127.0.0.1:{view.port}/"


async def test_another_prefix_or_port_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        first = await views.open("one", EndpointWish(port=0))
        assert first is not None
        same = await views.open("one", EndpointWish(port=first.port, prefix="x"))
        assert same == Endpoint(port=first.port, prefix="x") and len(listeners.open) == 1
        assert (await answer_at(f"http://127.0.0.1:{first.port}/")).status_code == 404
        with listening() as port, pytest.raises(AlreadyOwned):
            await views.open("one", EndpointWish(port=port))
        assert (await answer_at(views.url(same))).status_code == 200, "the old one is kept when there is no new one"
        other = await views.open("one", EndpointWish(port=0))
        assert other is not None and [listener.port for listener in listeners.open] == [other.port] != [first.port]


# ----------------------------------------------------------------------------------------------------------- restoring


async def test_a_recorded_view_is_opened_again(tmp_path: Path) -> None:
    view = Endpoint(port=free_port(), prefix="x")
    async with opened(tmp_path) as (views, _):
        views.restore("one", view)
        await views.tried()
        assert (await answer_at(views.url(view))).status_code == 200 and views.problem("one") == ""


async def test_a_recorded_port_that_is_busy_is_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.app.endpoints._AGAIN_S", 0.01)
    async with opened(tmp_path) as (views, listeners):
        with listening() as port:
            views.restore("one", Endpoint(port=port))
            await views.tried()
            assert views.problem("one").startswith(f"its view cannot be opened again: port {port} is in use by process")
            assert views.problem("one").endswith("; it is tried again") and listeners.open == ()
        async with asyncio.timeout(20):
            while views.problem("one"):  # noqa: ASYNC110 (ports tell nobody)
                await asyncio.sleep(0.01)
        assert [listener.port for listener in listeners.open] == [port]


async def test_a_refused_one_does_not_end_the_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for another port and does not get it still has the recorded one."""
    monkeypatch.setattr("nni_manager.app.endpoints._AGAIN_S", 0.01)
    async with opened(tmp_path) as (views, listeners):
        with listening() as port, listening() as other:
            views.restore("one", Endpoint(port=port))
            await views.tried()
            with pytest.raises(AlreadyOwned):
                await views.open("one", EndpointWish(port=other))
            assert f"port {port} is in use" in views.problem("one")
        async with asyncio.timeout(20):
            while views.problem("one"):  # noqa: ASYNC110 (ports tell nobody)
                await asyncio.sleep(0.01)
        assert [listener.port for listener in listeners.open] == [port]


async def test_another_one_ends_the_tries(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        with listening() as port:
            views.restore("one", Endpoint(port=port))
            await views.tried()
            view = await views.open("one", EndpointWish(port=0))
            assert view is not None and views.problem("one") == "" and not views._restoring
        assert [listener.port for listener in listeners.open] == [view.port]


async def test_a_port_that_cannot_be_served_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nni_manager.app.endpoints._AGAIN_S", 0.01)
    view = Endpoint(port=free_port())
    async with opened(tmp_path) as (views, listeners):
        served = listeners._add

        async def refuse(_: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(listeners, "_add", refuse)
        views.restore("one", view)
        await views.tried()
        assert "Too many open files" in views.problem("one") and listeners.open == ()
        monkeypatch.setattr(listeners, "_add", served)
        async with asyncio.timeout(20):
            while views.problem("one"):  # noqa: ASYNC110 (ports tell nobody)
                await asyncio.sleep(0.01)
        assert (await answer_at(views.url(view))).status_code == 200


async def test_closing_ends_the_tries(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, listeners):
        with listening() as port:
            views.restore("one", Endpoint(port=port))
            await views.tried()
            await views.close("one")
            assert views.problem("one") == ""
        assert listeners.open == () and not views._restoring


async def test_nothing_waits_for_listeners_that_are_not_there_yet(tmp_path: Path) -> None:
    listeners, views = Listeners(says("service")), Views(Settings(data_dir=tmp_path), allowed=True)
    views.restore("one", view := Endpoint(port=free_port()))
    opening = asyncio.ensure_future(views.open("two", EndpointWish(port=0)))
    await asyncio.sleep(0)
    views.bind(listeners, parts())
    await views.tried()
    assert await opening is not None and (await answer_at(views.url(view))).status_code == 200
    await views.end()
    await listeners.close()


# ------------------------------------------------------------------------------------------------------ what is served


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
async def test_what_stands_where(tmp_path: Path, prefix: str, method: str, path: str, expected: str) -> None:
    async with opened(tmp_path) as (views, _):
        view = await views.open("one", EndpointWish(port=0, prefix=prefix))
        assert view is not None
        root = view.path.rstrip("/")
        answer = await answer_at(f"http://127.0.0.1:{view.port}{root}{path}", method)
        assert answer.text == expected.format(root=root)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/experiments"), ("GET", "/experiments/two"), ("GET", "/experiments/onetwo"), ("GET", "/nothing"),
        ("GET", "/api/v1/experiments"), ("GET", "/api/v1/experiments/two/events"), ("GET", "/api/v1/nnix"),
        ("POST", "/api/v1/experiments/one/stop"), ("DELETE", "/api/v1/experiments/one"), ("GET", "/api/v1/daemon"),
        ("GET", "/metrics"), ("GET", "/openapi.json"), ("POST", "/oview"), ("GET", "//"),
    ],
)  # fmt: skip
async def test_nothing_else_is_there(tmp_path: Path, method: str, path: str) -> None:
    async with opened(tmp_path) as (views, _):
        view = await views.open("one", EndpointWish(port=0))
        assert view is not None
        answer = await answer_at(f"http://127.0.0.1:{view.port}{path}", method)
        assert answer.status_code == 404 and answer.json()["error"].startswith("there is nothing at ")


async def test_outside_of_the_prefix(tmp_path: Path) -> None:
    async with opened(tmp_path) as (views, _):
        view = await views.open("one", EndpointWish(port=0, prefix="my/pre"))
        assert view is not None
        base = f"http://127.0.0.1:{view.port}"
        for method, path in (("GET", "/"), ("GET", "/my"), ("PUT", "/my/prefix"), ("POST", "/my/pre")):
            answer = await answer_at(base + path, method)
            assert (answer.status_code, answer.text) == (404, 'Outside prefix "/my/pre"')
        answer = await answer_at(f"{base}/my/pre?order=final")
        assert (answer.status_code, answer.headers["location"]) == (301, "/my/pre/?order=final")
        answer = await answer_at(f"{base}/my/pre/oview")
        assert (answer.status_code, answer.headers["location"]) == (307, "/my/pre/")


async def test_the_checks_stand_before_everything(tmp_path: Path) -> None:
    def closed(_: ASGIApp) -> ASGIApp:
        return says("guard")

    listeners, views = Listeners(says("service")), Views(Settings(data_dir=tmp_path), allowed=True)
    views.bind(listeners, parts(closed))
    view = await views.open("one", EndpointWish(port=0, prefix="my/pre"))
    assert view is not None
    for path in ("/", "/my/pre/", "/my/pre/api/v1/nni/x"):
        assert (await answer_at(f"http://127.0.0.1:{view.port}{path}")).text.startswith("guard ")
    await listeners.close()
