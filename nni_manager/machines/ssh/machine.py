"""A machine as the daemon uses it: its SSH connection, its keeper, and the jobs of all experiments there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.machines.ssh.address import Address, Credential
from nni_manager.machines.ssh.bootstrap import Greeting, arrive
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.login import log_in
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.tasks import ended, happened
from trial_runner import protocol

#: Seconds between two attempts if a user must act, and otherwise.
_WRONG_S = 20.0
#: Seconds for which a refusal applies to all experiments with that login: one attempt for all of them.
_REFUSAL_S = 10.0


class Machine(KeeperConnection):
    """The connection to a machine and its keeper."""

    def __init__(self, address: Address, connections: Connections) -> None:
        self.address = address
        #: Our folder on it, below the home folder.
        self._folder = f"{connections.identity}/{address.folder}"
        self._place = connections.place
        #: Paths of Python set by its experiments; the first is tried next.
        self._python_paths: list[str] = []
        super().__init__(Keeper(self._reach, address.host), connections.shared_object(Places), address.key)
        self._credential: Credential | None = None
        #: Logged in to check a credential, and not used yet.
        self._spare: tuple[Credential, asyncssh.SSHClientConnection] | None = None
        #: The last fault; None while it is connected.
        self.fault: Fault | None = None
        #: Its last greeting.
        self.greeting: Greeting | None = None
        #: Names of jobs that run there, of all experiments of this daemon.
        self.running: set[str] = set()
        #: Recently refused logins, with their times by the loop's clock.
        self._refusals: dict[Credential, tuple[float, Fault]] = {}
        self._not_before_s = float("-inf")
        #: Set when the next attempt must not wait.
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await super().open()
        self._task = asyncio.create_task(self.keeper.run(), name=f"keeper of {self.address.host}")

    async def close(self) -> None:
        await ended(self._task)
        self._drop_spare()
        await super().close()

    # Credentials

    async def check(self, credential: str) -> None:
        wanted = Credential.parse(credential)
        if wanted == self._credential and self.keeper.is_connected:
            return
        self._drop_spare()
        try:
            self._check_refused(wanted)
            self._spare = wanted, await log_in(self.address, wanted)
        except MachineFault as error:
            self._note_refusal(wanted, error.fault)
            if self._credential is None:
                self.fault = error.fault
                self.note_down(str(error.fault))
            raise error.fault.error(self.address.host) from error

    def forget_refusals(self) -> None:
        """Allows another attempt with recently refused logins, at a user's request."""
        self._refusals.clear()

    def _check_refused(self, credential: Credential) -> None:
        """Raises MachineFault for a recently refused login."""
        at_s, fault = self._refusals.get(credential, (float("-inf"), None))
        if fault is not None and asyncio.get_running_loop().time() < at_s + _REFUSAL_S:
            raise MachineFault(fault)

    def _note_refusal(self, credential: Credential, fault: Fault) -> None:
        _, known = self._refusals.get(credential, (0.0, None))
        if fault.is_refusal and fault is not known:
            self._refusals[credential] = asyncio.get_running_loop().time(), fault

    async def use(self, credential: str) -> None:
        self._credential = Credential.parse(credential)
        self._not_before_s = float("-inf")

    # Its Python

    def look_for_python(self, path: str) -> None:
        """Starts the waiting attempt now, with Python searched at `path` first (empty: where the login finds it)."""
        if path in self._python_paths[:1]:
            return
        self._python_paths = [path, *(other for other in self._python_paths if other != path)]
        self._not_before_s = float("-inf")
        self._hurried.set()

    # The keeper's connection

    async def _reach(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """A new transport to the machine's keeper. Raises PlatformError."""
        await self._until_due()
        python_path = next(iter(self._python_paths), "")
        try:
            return await self._attach(make_protocol, python_path)
        except MachineFault as error:
            self._note_fault(error.fault, python_path)
            raise error.fault.error(self.address.host) from error

    async def _until_due(self) -> None:
        self._hurried.clear()
        wait_s = self._not_before_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await happened(self._hurried, asyncio.timeout(wait_s))

    def _note_fault(self, fault: Fault, python_path: str) -> None:
        """Notes the fault of an attempt with this path of Python."""
        self.fault = fault
        if fault.is_refusal and self._credential is not None:
            self._note_refusal(self._credential, fault)
            self._credential = None
        if self._python_paths and self._python_paths[0] != python_path:
            return  # another path was set meanwhile, and is tried at once
        if fault.is_wrong:
            self._not_before_s = asyncio.get_running_loop().time() + _WRONG_S
        if fault.subject == "python":  # another experiment may have the right path
            self._python_paths = [*self._python_paths[1:], *self._python_paths[:1]]

    async def _attach(self, make_protocol: Callable[[], asyncio.Protocol], python_path: str) -> asyncio.Transport:
        place = None if self._place is None else await asyncio.to_thread(self._place)
        connection = await self._login()
        try:
            channel, greeting = await arrive(connection, folder=self._folder, python_path=python_path, place=place)
            transport = channel.hand_over(make_protocol(), connection)
        except EOFError as error:
            connection.abort()
            raise PlatformUnavailable(f"{self.address.host}: its keeper did not start ({error})") from error
        except BaseException:
            connection.abort()
            raise
        self.fault, self.greeting = None, greeting
        return transport

    async def _login(self) -> asyncssh.SSHClientConnection:
        if self._credential is None:
            raise PlatformUnavailable(str(self.fault or "there was no login yet"))
        spare, self._spare = self._spare, None
        if spare is not None and spare[0] == self._credential and not spare[1].is_closed():
            return spare[1]
        return await log_in(self.address, self._credential)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare[1].abort()
            self._spare = None

    # Reports of the keeper

    async def on_up(self) -> None:
        listed = await self._list()
        alive = (protocol.PREPARING, protocol.RUNNING)
        self.running = {name for name, job in listed.items() if job["state"] in alive}
        self.fault = None
        await super().on_up()

    def on_end(self, job_name: str) -> None:
        self.running.discard(job_name)
        super().on_end(job_name)

    async def put(self, path: str, size: int, offset: int, data: str) -> int:
        """Sends a piece of a file; returns the number of bytes there now. Raises PlatformError."""
        answer = await self.keeper.request("put", file=path, size=size, offset=offset, data=data)
        return int(answer["bytes"])

    async def remove(self, folder: str) -> None:
        """Removes a folder and its content. Raises PlatformError."""
        await self.keeper.request("remove", folder=folder)
