"""Commands over a login whose name leads to several hosts, as that of a cluster's login nodes."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.machines.shell import NoAnswer
from nni_manager.machines.ssh import login_faults
from nni_manager.machines.ssh.login_shell import LoginShell
from tests.machines.test_login_shell import shell_of
from tests.platforms.remote.ssh_machines import InProcessMachine, RealMachine, home_of_manager
from tests.waiting import until_async

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

NAME = "login.cluster.test"


@pytest.fixture(autouse=True)
def manager(tmp_path: Path) -> Iterator[Path]:
    with home_of_manager(tmp_path / "manager") as home:
        yield home


def name_addresses(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Lets the name lead to these addresses, in this order."""
    real = socket.getaddrinfo

    def resolved(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host != NAME:
            return real(host, port, *rest, **options)
        return [found for address in addresses for found in real(address, port, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest_asyncio.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[RealMachine]]:
    """Two login nodes with one home folder and one port, each with a host key of its own."""
    first, second = RealMachine(tmp_path / "first"), RealMachine(tmp_path / "second")
    second.address, second.port, second.home, second.key_file = "127.0.0.2", first.port, first.home, first.key_file
    (second.directory / "authorized_keys").write_bytes((first.directory / "authorized_keys").read_bytes())
    name_addresses(monkeypatch, first.address, second.address)
    for node in (first, second):
        await node.start()
    yield [first, second]
    for node in (first, second):
        await node.stop()


async def text_of(shell: LoginShell, command: str) -> str:
    """The output of a command that may run twice, as the loss of a connection may be noticed late."""
    try:
        return (await shell.run(command)).text
    except NoAnswer:
        return (await shell.run(command)).text


@contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """A host that does not answer: its server accepts nothing, and its queue is full."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket())
        server.bind((address, port))
        server.listen(0)
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield


@contextmanager
def hung(address: str, port: int) -> Iterator[None]:
    """A host that accepts connections, but whose SSH server sends nothing."""
    with socket.create_server((address, port)):
        yield


@contextmanager
def closing(address: str, port: int) -> Iterator[None]:
    """A host that closes a connection before its SSH server sends anything."""
    with socket.create_server((address, port)) as server:
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        yield


def in_config(nodes: list[RealMachine]) -> str:
    return ", ".join(node.fingerprint for node in nodes)


def in_known_hosts(nodes: list[RealMachine]) -> None:
    lines = [f"[{NAME}]:{node.port} {node.host_key.export_public_key().decode()}" for node in nodes]
    Path(os.environ["HOME"], ".ssh", "known_hosts").write_text("".join(lines))


@pytest.mark.parametrize("trusted", [in_config, in_known_hosts])
async def test_another_host_of_the_name_takes_over(nodes: list[RealMachine], trusted: Any) -> None:
    async with shell_of(nodes[0], host=NAME, hostKey=trusted(nodes)) as shell:
        assert (await shell.run("echo on > ~/written")).rc == 0
        await nodes[0].stop()
        assert await text_of(shell, "cat ~/written") == "on\n"
    assert [node.logins for node in nodes] == [1, 1]


async def test_command_of_a_host_that_goes_away_is_not_repeated(nodes: list[RealMachine]) -> None:
    async with shell_of(nodes[0], host=NAME, hostKey=in_config(nodes)) as shell:
        cut = asyncio.create_task(shell.run("echo begun >> ~/begun; sleep 100"))
        await until_async((nodes[0].home / "begun").exists)
        await nodes[0].stop()
        with pytest.raises(NoAnswer):
            await cut
        assert await text_of(shell, "cat ~/begun") == "begun\n"


async def test_key_of_another_host_says_what_to_do(nodes: list[RealMachine]) -> None:
    async with shell_of(nodes[1], host=NAME) as shell:
        with pytest.raises(BadCredentials, match="several machines answer to this name, list all their fingerprints"):
            await shell.run("echo on")


@pytest.mark.parametrize("unusable", [silent, hung, closing])
async def test_silent_host_of_the_name_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unusable: Any
) -> None:
    machine = InProcessMachine(tmp_path / "machine")
    await machine.start()
    try:
        with unusable("127.0.0.3", machine.port):
            name_addresses(monkeypatch, "127.0.0.3", machine.address)
            async with shell_of(machine, host=NAME) as shell:
                began_s = time.monotonic()
                assert (await shell.run("echo on")).text == "on\n"
                assert time.monotonic() - began_s < 5
    finally:
        await machine.stop()


async def test_message_names_the_hosts_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_faults, "CONNECT_S", 1.0)
    machine = InProcessMachine(tmp_path / "machine")
    name_addresses(monkeypatch, "127.0.0.3", "127.0.0.4")
    with hung("127.0.0.3", machine.port), hung("127.0.0.4", machine.port):
        async with shell_of(machine, host=NAME) as shell:
            with pytest.raises(
                PlatformUnavailable, match=r"of 127\.0\.0\.3 and 127\.0\.0\.4 accepts connections, but no"
            ):
                await shell.run("echo on")


async def test_unusable_hosts_of_the_name_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = InProcessMachine(tmp_path / "machine")
    name_addresses(monkeypatch, "127.0.0.3", "127.0.0.4")
    with closing("127.0.0.3", machine.port):
        async with shell_of(machine, host=NAME) as shell:
            with pytest.raises(PlatformUnavailable, match="its SSH server closed the connection"):
                await shell.run("echo on")
