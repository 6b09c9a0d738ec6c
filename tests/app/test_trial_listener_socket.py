"""The trial listener's socket: when it is open, its port, and the URL for runners."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from starlette.types import Receive, Scope, Send

from nni_manager.app.listening import trial_listener
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve
from nni_manager.app.listening.trial_listener import TrialListenerSocket
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.scheduler.changes import DaemonWarnings
from tests.app.foreign_port import free_port, listening, listening_at

pytestmark = pytest.mark.unit


class Says:
    """An application that answers its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.name.encode()})


@asynccontextmanager
async def opened(
    data: Path,
    *,
    allowed: bool = True,
    at_work: Collection[str] = (),
    warnings: DaemonWarnings | None = None,
    neighbour: Callable[[], int] | None = None,
    **settings: object,
) -> AsyncIterator[tuple[TrialListenerSocket, Listeners]]:
    """A daemon's listeners, without the daemon. `at_work`: its open experiments."""
    listeners = Listeners(Says("service"))
    chosen = {"trial_host": "127.0.0.1", "port": 0, **settings}
    made = Settings(data_dir=data, **chosen)  # type: ignore[arg-type]
    listener = TrialListenerSocket(made, warnings or DaemonWarnings(), allowed=allowed, neighbour=neighbour)
    listener.bind(listeners, Says("trials"), at_work.__contains__)
    yield listener, listeners
    await listeners.close()


def file_of(data: Path) -> Path:
    return data / "trial-listener.json"


def store(data: Path, port: int, *experiments: str) -> None:
    """As left by a daemon that was killed."""
    file_of(data).write_text(json.dumps({"port": port, "experiments": experiments, "expected": 0}))


def port_of(listener: TrialListenerSocket) -> int:
    return int(listener.url("").rpartition(":")[2])


async def answer_at(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url)).text


async def test_listener_is_open_while_an_experiment_needs_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, listeners):
        assert listeners.open == ()
        await listener.open("exp1")
        await listener.open("exp1")
        await listener.open("exp2")
        url = listener.url("")
        assert [(one.kind, one.address) for one in listeners.open] == [("trials", url)]
        assert await answer_at(url) == "trials"
        await listener.close("exp1")
        assert await answer_at(url) == "trials"
        await listener.close("exp2")
        await listener.close("exp2")
        assert listeners.open == ()
        with pytest.raises(httpx.ConnectError):
            await answer_at(url)
        await listener.open("exp3")
        assert await answer_at(listener.url("")) == "trials"


async def test_each_listener_has_its_own_application(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, listeners):
        service = reserve("127.0.0.1", 0)
        await listeners.open_port("service", service)
        await listener.open("exp1")
        assert (await answer_at(service.address), await answer_at(listener.url(""))) == ("service", "trials")
        await listener.close("exp1")
        assert await answer_at(service.address) == "service"


async def test_closing_ends_its_connections_and_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, listeners), httpx.AsyncClient(trust_env=False) as client:
        service = reserve("127.0.0.1", 0)
        await listeners.open_port("service", service)
        await listener.open("exp1")
        await client.get(service.address)
        await client.get(url := listener.url(""))
        assert len(listeners._server.server_state.connections) == 2
        await listener.close("exp1")
        async with asyncio.timeout(5):
            while len(listeners._server.server_state.connections) == 2:  # noqa: ASYNC110 (no event tells of it)
                await asyncio.sleep(0)
        assert (await client.get(service.address)).text == "service"
        assert len(listeners._server.server_state.connections) == 1
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_the_next_daemon_has_the_same_address(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, _):
        await listener.open("exp1")
        port, token = port_of(listener), listener.tokens.token("job")
    async with opened(tmp_path, trial_port=free_port(), at_work=["exp1"]) as (listener, _):
        await listener.open("exp1")
        assert (port_of(listener), listener.tokens.token("job")) == (port, token), "running jobs know no other"
        await listener.close("exp1")
    async with opened(tmp_path, trial_port=(chosen := free_port()), at_work=["exp1"]) as (listener, _):
        await listener.open("exp2")
        assert port_of(listener) == chosen, "no job knows the old one"


async def test_an_address_that_no_job_knows_any_more_does_not_count(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, _):
        await listener.open("exp1")
        port = port_of(listener)
    with listening_at(port):
        async with opened(tmp_path, at_work=["exp2"]) as (listener, _):
            await listener.open("exp2")
            assert port_of(listener) != port


async def test_later_users_are_recorded_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, _):
        await listener.open("exp1")
        await listener.open("exp2")
        port = port_of(listener)
    async with opened(tmp_path, trial_port=free_port(), at_work=["exp2"]) as (listener, _):
        await listener.open("exp2")
        assert port_of(listener) == port


async def test_configured_port_replaces_a_busy_stored_one(tmp_path: Path) -> None:
    with listening() as port:
        store(tmp_path, port, "exp1")
        async with opened(tmp_path, trial_port=(chosen := free_port()), at_work=["exp1"]) as (listener, _):
            await listener.open("exp1")
            assert port_of(listener) == chosen


@pytest.mark.parametrize("chosen", [False, True])
async def test_a_stored_port_that_is_busy_says_what_helps(tmp_path: Path, chosen: bool) -> None:
    with listening() as port:
        store(tmp_path, port, "exp1")
        async with opened(tmp_path, trial_port=port if chosen else 0, at_work=["exp1"]) as (listener, _):
            with pytest.raises(PlatformUnavailable) as refusal:
                await listener.open("exp1")
    assert str(refusal.value).endswith(
        f"port {port} is in use by process {os.getpid()} ({psutil.Process().name()}), but running jobs report there;"
        " end that process, or start the daemon with another --trial-port, which those jobs cannot find"
    )


async def test_unavailable_port_is_forgotten_with_last_user(tmp_path: Path) -> None:
    with listening() as port:
        store(tmp_path, port, "exp1")
        async with opened(tmp_path, at_work=["exp1", "exp2"]) as (listener, _):
            for id_ in ("exp1", "exp2"):
                with pytest.raises(PlatformUnavailable):
                    await listener.open(id_)
            await listener.close("one that never wanted it")
            await listener.close("exp2")
            assert file_of(tmp_path).exists(), "jobs of the other may know it"
            await listener.close("exp1")
            assert not file_of(tmp_path).exists()
            await listener.open("exp3")
            assert port_of(listener) != port


async def test_default_port(tmp_path: Path) -> None:
    with listening() as port:
        pass
    async with opened(tmp_path, port=port - 1) as (listener, _):
        await listener.open("exp1")
        assert port_of(listener) == port


async def test_default_port_with_an_open_view(tmp_path: Path) -> None:
    with listening() as port:
        pass
    listeners = Listeners(Says("service"))
    settings = Settings(data_dir=tmp_path, trial_host="127.0.0.1")
    listener = TrialListenerSocket(settings, DaemonWarnings(), allowed=True, neighbour=lambda: port - 1)
    listener.bind(listeners, Says("trials"), lambda _: True)
    await listener.open("exp1")
    assert port_of(listener) == port
    await listeners.close()


async def test_busy_default_port_is_replaced_with_a_warning(tmp_path: Path) -> None:
    warnings = DaemonWarnings()
    with listening() as port:
        async with opened(tmp_path, port=port - 1, warnings=warnings) as (listener, _):
            await listener.open("exp1")
            await listener.open("exp2")
            moved = port_of(listener)
            assert moved != port
            for id_ in ("exp1", "exp2"):
                ((code, message),) = [(one.code, one.message) for one in warnings.of(id_)]
                assert code == "TRIAL_PORT_MOVED" and f"is on port {moved} instead of {port}" in message
            await listener.close("exp2")
            assert warnings.of("exp2") == ()
    later = DaemonWarnings()
    async with opened(tmp_path, at_work=["exp1"], port=port - 1, warnings=later) as (listener, _):
        await listener.open("exp1")
        assert port_of(listener) == moved and later.of("exp1") == warnings.of("exp1"), "the next daemon, for its jobs"
        await listener.close("exp1")
        await listener.open("exp1")
        assert port_of(listener) == port and later.of("exp1") == ()


@pytest.mark.parametrize("port", [0, 65535])
async def test_a_service_that_has_no_neighbour(tmp_path: Path, port: int) -> None:
    async with opened(tmp_path, port=port) as (listener, _):
        await listener.open("exp1")
        assert await answer_at(listener.url("")) == "trials"


async def test_a_busy_port_is_named_and_tried_again(tmp_path: Path) -> None:
    with listening() as port:
        async with opened(tmp_path, trial_port=port) as (listener, listeners):
            with pytest.raises(PlatformUnavailable) as refusal:
                await listener.open("exp1")
            assert f"the trial listener cannot be opened: port {port} is in use by process {os.getpid()}" in str(
                refusal.value
            )
            assert str(refusal.value).endswith("choose another with --trial-port")
            assert listeners.open == ()
    async with opened(tmp_path, trial_port=port) as (listener, _):
        await listener.open("exp1")
        assert port_of(listener) == port


async def test_a_stored_port_that_is_busy_is_not_exchanged(tmp_path: Path) -> None:
    with listening() as port:
        store(tmp_path, port, "exp1")
        async with opened(tmp_path, at_work=["exp1"]) as (listener, _):
            with pytest.raises(PlatformUnavailable, match=f"port {port} is in use"):
                await listener.open("exp1")


async def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    async with opened(tmp_path, trial_host="192.0.2.1") as (listener, _):
        with pytest.raises(PlatformUnavailable, match=r"192\.0\.2\.1.* choose another with --trial-host"):
            await listener.open("exp1")


async def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, listeners):
        moved = await asyncio.to_thread(tmp_path.rename, tmp_path.with_name("elsewhere"))
        with pytest.raises(PlatformUnavailable, match="the trial listener cannot be opened"):
            await listener.open("exp1")
        assert listeners.open == ()
        await asyncio.to_thread(moved.rename, tmp_path)
        await listener.open("exp1")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"port": null, "experiments": 3}', '{"port": "8081"}', '{"port": 0}', '{"port": 70000}', "\x00"],
)
async def test_stored_invalid_address(tmp_path: Path, text: str) -> None:
    (tmp_path / "trial-listener.json").write_text(text)
    async with opened(tmp_path) as (listener, _):
        await listener.open("exp1")
        assert json.loads((tmp_path / "trial-listener.json").read_text()) == {
            "port": port_of(listener),
            "experiments": ["exp1"],
            "expected": 0,
        }


async def test_no_listen(tmp_path: Path) -> None:
    async with opened(tmp_path, allowed=False) as (listener, listeners):
        with pytest.raises(PlatformUnavailable, match="started with --no-listen; start it without"):
            await listener.open("exp1")
        assert listeners.open == ()


async def test_open_waits_for_the_listeners(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, trial_host="127.0.0.1")
    listeners, listener = Listeners(Says("service")), TrialListenerSocket(settings, DaemonWarnings(), allowed=True)
    opening = asyncio.ensure_future(listener.open("exp1"))
    gives_up = asyncio.ensure_future(listener.open("exp2"))
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.wait([gives_up])
    listener.bind(listeners, Says("trials"), lambda _: True)
    await opening
    assert await answer_at(listener.url("")) == "trials"
    await listeners.close()


async def test_an_opening_that_is_cut_off_leaves_no_port(tmp_path: Path) -> None:
    async with opened(tmp_path) as (listener, listeners):
        opening = asyncio.ensure_future(listener.open("exp1"))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await listener.open("exp2")
        assert len(listeners.open) == 1 and await answer_at(listener.url("")) == "trials"


# ------------------------------------------------------------------------------------------------ URL for runners


@pytest.mark.parametrize(
    ("host", "manager_ip", "expected"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("localhost", "", "localhost"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("0.0.0.0", "10.1.2.3", "10.1.2.3"),
        ("0.0.0.0", "manager.example", "manager.example"),
        ("127.0.0.1", "fd00::7", "[fd00::7]"),
        ("0.0.0.0", "", "203.0.113.9"),
    ],
)
async def test_address_for_runners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, manager_ip: str, expected: str
) -> None:
    monkeypatch.setattr(trial_listener, "_own_address", lambda elsewhere: "203.0.113.9")
    async with opened(tmp_path, trial_host=host) as (listener, _):
        await listener.open("exp1")
        port = json.loads((tmp_path / "trial-listener.json").read_text())["port"]
        assert listener.url(manager_ip) == f"http://{expected}:{port}"


def test_our_own_address_is_one_of_ours() -> None:
    with socket.socket() as probe:
        probe.bind((trial_listener._own_address("192.0.2.1"), 0))
    assert ":" in trial_listener._own_address("2001:db8::1")


async def test_port_of_an_endpoint_is_looked_up_on_the_loop(tmp_path: Path) -> None:
    """Endpoints are opened there meanwhile; another thread would meet them half changed."""
    asked: list[threading.Thread] = []

    def neighbour() -> int:
        asked.append(threading.current_thread())
        return 0

    async with opened(tmp_path, neighbour=neighbour) as (listener, _):
        await listener.open("exp1")
        await listener.close("exp1")
    assert asked == [threading.current_thread()]
