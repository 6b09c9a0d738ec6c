"""Commands on a machine over one SSH connection, which is made when it is needed and again when it was lost.

Commands run in parallel as far as the server allows: where it refuses another session (`MaxSessions`), they wait for
each other. Nothing of ours runs on the machine between commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import asyncssh

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.shell import MOST_OUTPUT, Answer, NoAnswer, Shell, answer_of, command_line, marked
from nni_manager.machines.ssh.address import Address, Credential
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.login import log_in
from trial_runner.wire.backoff import Backoff

#: Sessions at a time, unless the server allows fewer.
_MOST_SESSIONS = 4
#: Seconds between two logins after failed ones.
_WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Seconds in which a server frees a closed session: it may read the next request first.
_FREED_S = (0.02, 0.1, 0.3)
#: Seconds between two logins after one was refused: repeated attempts could lock the account.
_REFUSED_S = 60.0


class LoginShell(Shell):
    """The shell of one login. `credential` may be replaced while it is used."""

    def __init__(self, address: Address, credential: Credential | None = None) -> None:
        self.name = address.host
        self._address = address
        self._credential = credential
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._backoff = Backoff(_WAITS_S)
        #: The last failed login, and the time of the next one by the loop's clock.
        self._fault: Fault | None = None
        self._not_before_s = float("-inf")
        self._sessions = _Sessions(_MOST_SESSIONS)

    async def check(self, credential: Credential) -> None:
        """Logs in with a credential. Raises BadCredentials and PlatformUnavailable."""
        if credential == self._credential and self._is_connected:
            return
        connection = await self._logged_in(credential)
        if self._credential in (None, credential) and not self._is_connected:
            self._credential, self._connection = credential, connection
            await self._sessions.allow(_MOST_SESSIONS)
            return
        await _abort(connection)

    async def use(self, credential: Credential) -> None:
        """Uses a checked credential from now on."""
        if credential != self._credential:
            self._credential = credential
            await self._drop()

    def try_again(self) -> None:
        """Allows a login now, although the last one failed."""
        self._not_before_s = float("-inf")

    async def run(
        self, command: str, stdin: bytes = b"", limit_s: float = 30.0, variables: Mapping[str, str] | None = None
    ) -> Answer:
        head, given = _taking(variables or {})
        text, mark = marked(head + command)
        try:
            async with asyncio.timeout(limit_s), self._sessions:
                rc, out, err = await self._run(command_line(text), given + stdin)
        except TimeoutError:
            raise NoAnswer(f"{self.name}: no answer within {limit_s:.0f} s") from None
        return answer_of(mark, rc, out, err, self.name)

    async def close(self) -> None:
        async with self._connecting:
            await self._drop()

    async def _run(self, line: str, stdin: bytes) -> tuple[int, bytes, bytes]:
        session = await self._opened(line)
        channel = session.channel
        try:
            with suppress(BrokenPipeError):  # the command has ended without reading it
                channel.write(stdin)
                channel.write_eof()
            await session.ended.wait()
        finally:
            if not session.ended.is_set():
                channel.abort()
        if session.rc is None:
            raise NoAnswer(f"{self.name}: the connection ended during the command ({session.why or 'no exit code'})")
        return session.rc, bytes(session.out), bytes(session.err)

    async def _opened(self, line: str) -> _Session:
        """A session that runs the command. Raises PlatformUnavailable: it does not run."""
        waits_s = iter(_FREED_S)
        is_new = False
        while True:
            connection = await self._connected()
            session = _Session()
            try:
                await connection.create_session(lambda made=session: made, line, encoding=None)  # type: ignore[misc]
            except (asyncssh.Error, OSError) as error:
                await asyncio.sleep(0)  # asyncssh marks a lost connection as closed one turn later
                if isinstance(error, asyncssh.ChannelOpenError) and not connection.is_closed():
                    if await self._sessions.allow_one():
                        continue
                    if (wait_s := next(waits_s, None)) is not None:
                        await asyncio.sleep(wait_s)
                        continue
                if is_new:
                    raise self._no_session(error) from error
                await self._drop(connection)
                is_new = True
            else:
                return session

    def _no_session(self, error: Exception) -> PlatformUnavailable:
        why = getattr(error, "reason", "") or str(error) or type(error).__name__
        return PlatformUnavailable(
            f"{self.name}: its SSH server opened no session ({why}); check MaxSessions and ForceCommand in its"
            " sshd_config",
            refused=True,
        )

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            if self._credential is None:
                raise PlatformUnavailable(f"{self.name}: there was no login yet", refused=True)
            connection = self._connection = await self._logged_in(self._credential)
            await self._sessions.allow(_MOST_SESSIONS)
            return connection

    async def _logged_in(self, credential: Credential) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        if self._fault is not None and loop.time() < self._not_before_s and credential == self._credential:
            raise self._fault.error(self.name)
        try:
            connection = await log_in(self._address, credential)
        except MachineFault as error:
            self._fault = error.fault
            wait_s = _REFUSED_S if error.fault.is_refusal else self._backoff.next_wait()
            self._not_before_s = loop.time() + wait_s
            raise error.fault.error(self.name) from error
        self._fault = None
        self._backoff.reset()
        return connection

    async def _drop(self, connection: asyncssh.SSHClientConnection | None = None) -> None:
        """Ends the connection, unless another one has replaced it."""
        if self._connection is not None and connection in (None, self._connection):
            dropped, self._connection = self._connection, None
            await _abort(dropped)


async def _abort(connection: asyncssh.SSHClientConnection) -> None:
    connection.abort()
    with suppress(asyncssh.Error, OSError):
        await connection.wait_closed()


class _Session(asyncssh.SSHClientSession[bytes]):
    """One command: its outputs and its exit code."""

    def __init__(self) -> None:
        self.channel: asyncssh.SSHClientChannel[bytes]
        self.out, self.err = bytearray(), bytearray()
        self.rc: int | None = None
        self.why = ""
        self.ended = asyncio.Event()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        kept = self.out if datatype is None else self.err
        kept += data
        if len(kept) > MOST_OUTPUT:
            self.why = f"it printed more than {MOST_OUTPUT // 2**20} MiB"
            self.channel.abort()

    def exit_status_received(self, status: int) -> None:
        self.rc = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.why = f"signal {signal}"

    def connection_lost(self, exc: Exception | None) -> None:
        self.why = self.why or str(exc or "")
        self.ended.set()


class _Sessions:
    """A limit of simultaneous sessions, which falls to one when the server of a connection refuses another."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._changed:
            await self._changed.wait_for(self._has_place)
            self._open += 1

    async def __aexit__(self, *_: object) -> None:
        self._open -= 1
        async with self._changed:
            self._changed.notify()

    async def allow_one(self) -> bool:
        """Waits for the only place after a refusal. False: this session had it."""
        async with self._changed:
            if self._most == 1 and self._open == 1:
                return False
            self._most = 1
            self._open -= 1
            try:
                self._changed.notify()
                await self._changed.wait_for(self._has_place)
            finally:
                self._open += 1
        return True

    async def allow(self, most: int) -> None:
        """Sets the limit for a new connection, whose server may be another one."""
        async with self._changed:
            self._most = most
            self._changed.notify_all()

    def _has_place(self) -> bool:
        return self._open < self._most


def _taking(variables: Mapping[str, str]) -> tuple[str, bytes]:
    """(shell text that reads variables from the beginning of stdin, that beginning)."""
    if not variables:
        return "", b""
    names = "".join(f"IFS= read -r -d '' {name}; export {name}\n" for name in variables)
    return names, b"".join(f"{value}\0".encode() for value in variables.values())
