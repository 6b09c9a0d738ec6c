"""Reaches the keeper after a login: the program that runs on a machine, in any login shell, and its greeting.

The command is a list of words that sh, bash, zsh, fish and csh interpret the same, without expansions. It finds a
Python and prints a mark; everything before it, from banners and start-up files, is dropped. Then follows
`trial_runner/keeper/arrival.py`, as one line, and the conversation that it describes.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import re
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
from pydantic import TypeAdapter, ValidationError

from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.login import logged_in
from nni_manager.machines.ssh.transport import Channel
from nni_manager.platform_kit.connections import Place
from nni_manager.platform_kit.payload import machine_archive
from trial_runner import protocol

#: Seconds for the machine's greeting, and for the transfer of the program.
_GREETING_S = 30.0
_INSTALL_S = 120.0
#: Seconds after which a driver that has not listed its GPUs counts as hanging.
_GPUS_S = 10
_OLDEST_PYTHON = (3, 7)
_BOOT = "import sys;sys.path.pop(0);import base64;print(sys.argv[1]+str(sys.version_info[:2]));sys.stdout.flush();exec(base64.b64decode(sys.stdin.readline()))"  # noqa: E501
_NO_PYTHON = "nopython"
_ARRIVAL = Path(protocol.__file__).parent / "keeper" / "arrival.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A machine's description of itself; see `trial_runner/keeper/arrival.py`."""

    python: str
    host: str
    #: Our folder on it, specific to this manager and machine.
    folder: str
    home: str
    #: The folder of `trial_runner`, and the Python that runs it.
    program: str
    interpreter: str
    #: The environment of the login's user.
    environment: dict[str, str]
    now_ms: int
    disk_free_bytes: int
    #: Number of free inodes; None: unlimited.
    free_inodes: int | None
    processors: int
    may_write: bool
    #: Version of the keeper that runs there; empty: none runs.
    keeper: str
    #: The other manager that the folder belongs to, as text; empty: it is ours.
    held: str
    #: A GPU reading by the wire contract, if requested.
    gpus: Mapping[str, Any] | None = None


@cache
def _tree() -> str:
    """SHA-256 of names and contents of the program; `trial_runner/keeper/arrival.py` computes the same."""
    whole = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(archive()[1])) as packed:
        for name in sorted(name for name in packed.namelist() if not name.endswith("/")):
            whole.update(f"{hashlib.sha256(packed.read(name)).hexdigest()} {name}\n".encode())
    return whole.hexdigest()


@cache
def archive() -> tuple[str, bytes]:
    """The program for machines: its hash, and its bytes."""
    data = machine_archive()
    return hashlib.sha256(data).hexdigest()[:32], data


async def arrive(
    connection: asyncssh.SSHClientConnection,
    *,
    folder: str,
    python_path: str = "",
    look: bool = False,
    gpus: bool = False,
    place: Place | None = None,
) -> tuple[Channel, Greeting]:
    """The channel to a machine's keeper, and the machine's greeting. Raises MachineFault.

    `look`: only inspect the machine, with its GPUs if `gpus` is set; then the channel ends. `place`: of this manager; a
    folder of another manager is refused.
    """
    mark = f"nni-manager-{secrets.token_hex(8)}:"
    digest, data = await asyncio.to_thread(archive)
    channel = await _open(connection, _command(python_path, mark))
    try:
        async with asyncio.timeout(_GREETING_S):
            await _found_python(channel, mark)
            settings = {
                "archive": digest,
                "tree": await asyncio.to_thread(_tree),
                "size": len(data),
                "folder": folder,
                "look": look,
                "gpus": _GPUS_S if gpus else 0,
                "manager": None if place is None else dict(place),
            }
            text = f"SETTINGS = {settings!r}\n{_ARRIVAL.read_text(encoding='utf-8')}"
            channel.channel.write(base64.b64encode(text.encode()) + b"\n")
            reply = await _reply(channel)
            greeting = _greeting(reply)
        if greeting.held and place is not None:
            raise MachineFault(_held(folder, greeting, place))
        async with asyncio.timeout(_INSTALL_S):
            if not reply.get("has") and (gpus or not look):
                channel.channel.write(data)
            if gpus:
                greeting = replace(greeting, gpus=await _reply(channel))
            elif not look:
                _check(await _reply(channel))
    except (EOFError, ValueError, KeyError, asyncssh.Error) as error:
        raise MachineFault(_odd_shell(str(error))) from error
    except TimeoutError as error:
        raise MachineFault(_silent_shell()) from error
    return channel, greeting


async def first_line(entry: Entry, text: str, limit_s: float) -> bytes:
    """The first line that a program prints on a machine. Raises MachineFault."""
    mark = f"nni-manager-{secrets.token_hex(8)}:"
    async with logged_in(entry) as connection:
        channel = await _open(connection, _command(entry.python_path, mark))
        try:
            async with asyncio.timeout(limit_s):
                await _found_python(channel, mark)
                channel.channel.write(base64.b64encode(text.encode()) + b"\n")
                return await channel.line()
        except (EOFError, asyncssh.Error) as error:
            raise MachineFault(_odd_shell(str(error))) from error
        except TimeoutError as error:
            raise MachineFault(_odd_shell(f"no output within {limit_s:.0f} s")) from error


def program_command(text: str, mark: str, *, python_path: str) -> tuple[str, bytes]:
    """(command for a login, input after the mark was printed): together they run a program's text."""
    return _command(python_path, mark), base64.b64encode(text.encode()) + b"\n"


async def _open(connection: asyncssh.SSHClientConnection, command: str) -> Channel:
    try:
        async with asyncio.timeout(_GREETING_S):
            channel = Channel()
            await connection.create_session(lambda: channel, command, encoding=None)
    except (asyncssh.Error, OSError) as error:  # a timeout is an OSError
        reason = getattr(error, "reason", "") or str(error) or "no answer"
        sentence = f"its SSH server opened no session ({reason})"
        fix = "check MaxSessions and ForceCommand in its sshd_config"
        raise MachineFault(Fault(subject="session", sentence=sentence, fix=fix)) from error
    return channel


def _command(python_path: str, mark: str) -> str:
    """The command that finds a Python and starts it.

    `python_path`: only characters without a meaning for shells; the config ensures that.
    """
    own = python_path.replace("~/", "$HOME/", 1) if python_path.startswith("~/") else python_path
    places = f'"{own}/python3" "{own}/python" "{own}" ' if own else ""
    script = (
        f"for p in {places}python3 python; do"
        ' if c=$(command -v "$p" 2>/dev/null) && [ -f "$c" ]; then'
        f' exec "$c" -E -c "{_BOOT}" {mark}; fi; done; echo {mark}{_NO_PYTHON}'
    )
    return f"exec /bin/sh -c '{script}'"


async def _found_python(channel: Channel, mark: str) -> None:
    found = await channel.until(re.compile(mark.encode() + rb"(?:\((\d+), (\d+)\)|" + _NO_PYTHON.encode() + rb")\r?\n"))
    if found[1] is None:
        raise MachineFault(_python_fault("it has no Python"))
    version = (int(found[1]), int(found[2]))
    if version < _OLDEST_PYTHON:
        raise MachineFault(_python_fault(f"its Python is {version[0]}.{version[1]}"))


def _python_fault(sentence: str) -> Fault:
    return Fault(
        subject="python",
        sentence=sentence,
        is_wrong=True,
        fix="install Python 3.7 or newer there, or set `pythonPath` to the folder of one",
    )


async def _reply(channel: Channel) -> dict[str, Any]:
    """The next line of the conversation. Raises EOFError; ValueError if it is not a JSON object."""
    reply = json.loads(await channel.line())
    if not isinstance(reply, dict):
        raise ValueError("it sent an invalid answer")
    return reply


def _greeting(reply: dict[str, Any]) -> Greeting:
    """Raises MachineFault; ValueError if the machine sent something other than a greeting."""
    if reply.get("system") != "Linux":
        fault = Fault(
            subject="system",
            sentence=f"it runs {str(reply.get('system'))[:40]}; trials need Linux",
            is_wrong=True,
            fix="remove it from `machineList`",
        )
        raise MachineFault(fault)
    if reply.get("has_pidfds") is False:
        fault = Fault(
            subject="system",
            sentence=f"its kernel is {str(reply.get('kernel'))[:60]}; trials need Linux 5.3",
            is_wrong=True,
            fix="update its kernel, or remove it from `machineList`",
        )
        raise MachineFault(fault)
    fields = {name: reply.get(name) for name in Greeting.__slots__ if name not in ("python", "gpus")}
    python = reply.get("python")
    try:
        shown = ".".join(map(str, python)) if isinstance(python, list) else None
        return TypeAdapter(Greeting).validate_json(json.dumps({**fields, "python": shown}), strict=True)
    except ValidationError as error:
        [first, *_] = error.errors(include_input=False, include_url=False)
        raise ValueError(f"its greeting has an invalid {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _check(reply: dict[str, Any]) -> None:
    if not reply.get("ready"):
        fault = Fault(
            subject="disk",
            sentence=str(reply.get("failed")),
            fix=str(reply.get("fix") or "free disk space, or give its user the right to write there"),
        )
        raise MachineFault(fault)


def _held(folder: str, greeting: Greeting, place: Place) -> Fault:
    ours = f"{place['directory']} on {place['host']}"
    return Fault(
        subject="manager",
        is_wrong=True,
        is_refusal=True,
        sentence=f"its folder {folder.partition('/')[0]} belongs to the manager of {greeting.held}, not of {ours}",
        fix="if that data directory was moved here and no manager uses it there any more, run `nni-manager identity"
        " --moved`; if this one is a copy, run `nni-manager identity --own` to give it folders of its own",
    )


def _silent_shell() -> Fault:
    return Fault(
        subject="session",
        sentence=f"it is logged in to, but the program there did not answer within {_GREETING_S:.0f} s (timeout)",
        fix="check whether a start-up file of its user's login shell, such as ~/.bashrc, waits for input",
    )


def _odd_shell(words: str) -> Fault:
    return Fault(
        subject="session",
        sentence=f"the program there did not answer ({words})",
        fix="check that `ssh` to it runs commands: its user's login shell and start-up files must",
    )
