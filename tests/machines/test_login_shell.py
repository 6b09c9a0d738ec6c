"""Commands over a login, and on this machine: outputs, limits, one session at a time, lost connections."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import pytest_asyncio

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.machines.shell import LocalShell, NoAnswer, Shell
from nni_manager.machines.ssh.address import Address, Credential
from nni_manager.machines.ssh.login_shell import LoginShell
from tests.platforms.remote.ssh_machines import InProcessMachine, RealMachine, SshMachine, home_of_manager
from tests.waiting import until_async

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

_LOUD = "echo welcome; echo a notice >&2\n"


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[RealMachine]:
    machine = RealMachine(tmp_path / "machine")
    (machine.home / ".bash_profile").write_text(_LOUD)
    with home_of_manager(tmp_path / "manager"):
        await machine.start()
        yield machine
        await machine.stop()


@asynccontextmanager
async def shell_of(machine: SshMachine, **fields: Any) -> AsyncIterator[LoginShell]:
    entry = machine.entry(**fields)
    shell = LoginShell(Address.of(entry), Credential.of(entry))
    try:
        yield shell
    finally:
        await shell.close()


@pytest_asyncio.fixture(params=["here", "over a login"])
async def shell(request: pytest.FixtureRequest, machine: RealMachine) -> AsyncIterator[Shell]:
    if request.param == "here":
        yield LocalShell()
        return
    async with shell_of(machine) as shell:
        yield shell


async def test_command_answers_code_and_both_outputs(shell: Shell) -> None:
    answer = await shell.run("echo out; echo err >&2; cat; exit 7", b"given")
    assert (answer.rc, answer.out, answer.err) == (7, b"out\ngiven", b"err\n")


async def test_large_input_and_output_arrive_whole(shell: Shell) -> None:
    data = os.urandom(3_000_000)
    assert (await shell.run("cat", data)).out == data


async def test_input_that_is_not_read_is_dropped(shell: Shell) -> None:
    for _ in range(5):
        assert (await shell.run("exit 3", os.urandom(1_000_000))).rc == 3


async def test_variables_are_set_and_not_on_a_command_line(shell: Shell) -> None:
    shown = 'echo "$SECRET|$OTHER"; cat; tr "\\0" " " < /proc/$$/cmdline'
    answer = await shell.run(shown, b"rest\n", variables={"SECRET": "a 'b'\n$c", "OTHER": ""})
    assert answer.text.startswith("a 'b'\n$c|\nrest\n") and "'b'" not in answer.text.partition("rest")[2]


async def test_limit_ends_that_call_alone(shell: Shell) -> None:
    slow = asyncio.create_task(shell.run("sleep 100", limit_s=0.5))
    assert (await shell.run("echo on")).text == "on\n"
    with pytest.raises(NoAnswer, match=r"no answer within"):
        await slow
    assert (await shell.run("echo still")).text == "still\n"


async def test_commands_wait_for_the_only_session(machine: RealMachine) -> None:
    async with shell_of(machine) as shell:
        answers = await asyncio.gather(*(shell.run(f"sleep 0.1; echo {number}") for number in range(5)))
        assert [answer.text for answer in answers] == [f"{number}\n" for number in range(5)]
    assert machine.logins == 1


async def test_lost_connection_is_made_again(machine: RealMachine) -> None:
    async with shell_of(machine) as shell:
        assert (await shell.run("echo on")).rc == 0
        cut = asyncio.create_task(shell.run("echo begun > ~/begun; sleep 100"))
        await until_async((machine.home / "begun").exists)
        await machine.stop()
        with pytest.raises(NoAnswer):
            await cut
        with pytest.raises(PlatformUnavailable) as away:
            await shell.run("echo off")
        assert away.value.refused
        await machine.start()
        shell.try_again()
        assert (await shell.run("echo on")).rc == 0


async def run_together(shell: LoginShell, home: Path) -> None:
    """Commands that end only when all of them run at the same time."""
    waits = "while [ $(ls ~/together | wc -l) -lt 4 ]; do sleep 0.02; done"
    (home / "together").mkdir()
    answers = [shell.run(f"touch ~/together/{number}; {waits}", limit_s=10) for number in range(4)]
    assert [answer.rc for answer in await asyncio.gather(*answers)] == [0] * 4


@pytest.mark.parametrize("while_opening", [False, True])
async def test_lost_connection_does_not_limit_sessions(
    machine: RealMachine, monkeypatch: pytest.MonkeyPatch, while_opening: bool
) -> None:
    opened, lost = asyncssh.SSHClientConnection.create_session, []

    async def lose_first(connection: asyncssh.SSHClientConnection, *given: Any, **options: Any) -> Any:
        if not lost:
            lost.append(connection)
            asyncio.get_running_loop().call_soon(connection.abort) if while_opening else connection.abort()
        return await opened(connection, *given, **options)

    monkeypatch.setattr(asyncssh.SSHClientConnection, "create_session", lose_first)
    machine.settings = ()
    await machine.stop()
    await machine.start()
    async with shell_of(machine) as shell:
        assert (await shell.run("echo on")).text == "on\n"
        assert lost and machine.logins == 2
        await run_together(shell, machine.home)


async def test_limit_of_sessions_ends_with_its_connection(machine: RealMachine) -> None:
    async with shell_of(machine) as shell:
        await asyncio.gather(*(shell.run("sleep 0.1") for _ in range(2)))
        await machine.stop()
        machine.settings = ()
        await machine.start()
        with suppress(NoAnswer):  # the loss may be noticed late
            await shell.run("echo on")
        await run_together(shell, machine.home)


async def test_refused_login_is_not_repeated_at_once(tmp_path: Path) -> None:
    machine = InProcessMachine(tmp_path / "strict")
    await machine.start()
    try:
        async with shell_of(machine, password="wrong") as shell:
            for _ in range(3):
                with pytest.raises(BadCredentials):
                    await shell.run("echo on")
            assert machine.refused_logins == 1
    finally:
        await machine.stop()


async def test_login_without_bash_says_so(machine: RealMachine) -> None:
    (machine.home / ".bash_profile").write_text("echo no shells here >&2; exit 1\n")
    async with shell_of(machine) as shell:
        with pytest.raises(PlatformUnavailable, match="no shells here"):
            await shell.run("echo on")


@pytest.mark.parametrize("name", ["sh", "fish", "csh"])
async def test_any_login_shell_runs_the_command(tmp_path: Path, name: str) -> None:
    machine = InProcessMachine(tmp_path / name, shell=shutil.which(name) or "no such shell")
    await machine.start()
    try:
        async with shell_of(machine) as shell:
            assert (await shell.run('echo "it\'s" $((1 + 1)) !; cat', b"given")).text == "it's 2 !\ngiven"
    finally:
        await machine.stop()


async def test_closing_ends_running_commands(shell: Shell, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    running = asyncio.create_task(shell.run(f"echo $$ > {begun}; exec sleep 100"))
    await until_async(lambda: begun.exists() and begun.read_text() != "")
    await shell.close()
    with pytest.raises(PlatformUnavailable):
        await running
