"""Commands in a login shell, of this machine or of another one, without a keeper: nothing of ours stays there.

The command line is two words and one quoted text without a meaning for any login shell (sh, bash, zsh, fish, csh).
Start-up files may print: a mark on both outputs separates their text from the command's.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import os
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit import child_process

#: Maximum bytes of a command's output.
MOST_OUTPUT = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a command. `rc`: its exit code."""

    rc: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def complaint(self) -> str:
        return self.err.decode(errors="replace").strip()


class NoAnswer(PlatformUnavailable):
    """The command may have run, and its result is unknown: time is up, or the connection ended."""


class Shell(abc.ABC):
    """Runs commands on one machine. Each call stands alone: its time limit ends that call."""

    #: The machine in messages.
    name: str

    @abc.abstractmethod
    async def run(
        self, command: str, stdin: bytes = b"", limit_s: float = 30.0, variables: Mapping[str, str] | None = None
    ) -> Answer:
        """The result of shell text. `variables`: in its environment, never on a command line.

        Raises NoAnswer, and BadCredentials or PlatformUnavailable (`refused`) if the command certainly did not run.
        """

    async def close(self) -> None:
        """Ends running commands and connections. Idempotent."""
        return None


def marked(command: str) -> tuple[str, bytes]:
    """(shell text, mark): the text prints the mark on both outputs before it runs the command."""
    mark = f"nni-manager-{secrets.token_hex(8)}"
    return f"echo {mark}; echo {mark} >&2\n{command}", mark.encode() + b"\n"


def command_line(text: str) -> str:
    """A command line that runs shell text in a login bash, started from any login shell."""
    encoded = base64.b64encode(text.encode()).decode()
    return f"exec bash -lc 'eval \"$(echo {encoded} | base64 -d)\"'"


def after(mark: bytes, output: bytes) -> bytes | None:
    """The output after the mark; None: the mark is missing, as the command was not reached."""
    _, found, rest = output.partition(mark)
    return rest if found else None


def answer_of(mark: bytes, rc: int, out: bytes, err: bytes, machine: str) -> Answer:
    """The answer of a marked command. Raises PlatformUnavailable if its shell did not reach it."""
    printed, complained = after(mark, out), after(mark, err)
    if printed is None or complained is None:
        words = " ".join((err or out).decode(errors="replace").split())[-300:]
        raise PlatformUnavailable(
            f"{machine}: the login shell did not run the command: {words or f'exit code {rc}'}", refused=True
        )
    return Answer(rc=rc, out=printed, err=complained)


class LocalShell(Shell):
    """Commands on this machine, with the environment of the caller: no start-up file runs."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.name = "this machine"
        self._environment = dict(environment or os.environ)
        self._running: set[asyncio.subprocess.Process] = set()

    async def run(
        self, command: str, stdin: bytes = b"", limit_s: float = 30.0, variables: Mapping[str, str] | None = None
    ) -> Answer:
        given = _file_of(stdin)  # no pipe: a command may end without reading
        try:
            process = await child_process.start(
                "bash",
                "-c",
                command,
                stdin=given,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._environment, **(variables or {})},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise PlatformUnavailable(f"{self.name}: bash cannot be started: {error}", refused=True) from error
        finally:
            os.close(given)
        self._running.add(process)
        try:
            async with asyncio.timeout(limit_s):
                out, err = await process.communicate()
        except TimeoutError:
            raise NoAnswer(f"{self.name}: no answer within {limit_s:.0f} s") from None
        finally:
            self._running.discard(process)
            await _end(process)
        assert process.returncode is not None, "it was waited for"
        if process.returncode < 0:
            raise NoAnswer(f"{self.name}: the command was ended by signal {-process.returncode}")
        return Answer(rc=process.returncode, out=out, err=err)

    async def close(self) -> None:
        for process in tuple(self._running):
            await _end(process)


def _file_of(data: bytes) -> int:
    """A descriptor of a file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("stdin")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kills a command with its children, and waits for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # a shield: its pipes and its watcher are closed even if this call is cancelled again
        await asyncio.shield(process.wait())
