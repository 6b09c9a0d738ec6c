"""A keeper as experiments share it: its connection's health, and the ledgers of the machines whose jobs it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import PlatformError
from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.keeper_client import Job, Keeper
from nni_manager.platform_kit.ledger import MachineLedger, Reservation
from nni_manager.platform_kit.places import Places
from trial_runner import protocol

#: Key of the keeper of this machine.
LOCAL = "keeper:local"


class KeeperConnection(Connection):
    """A keeper's `Watcher`: before anybody is told that it is connected, its list is read into the ledgers."""

    def __init__(self, keeper: Keeper, places: Places, key: str = LOCAL, clock: Clock = now_ms) -> None:
        super().__init__(key, clock)
        self.keeper = keeper
        self.places = places
        self._machines: dict[str, MachineLedger] = {}
        #: Questions for the list that are under way, and jobs that ended meanwhile.
        self._reading = 0
        self._ended: set[str] = set()

    async def open(self) -> None:
        self.keeper.watchers.append(self)

    async def close(self) -> None:
        self.keeper.watchers.remove(self)
        self.on_down("nobody uses it")

    async def serve(self, machines: Mapping[str, int]) -> None:
        """Jobs on these machines (name → places) are this keeper's."""
        for name, places in machines.items():
            self._machines[name] = self.places.machine(name, places)
        if self.keeper.is_connected:
            await self.read()

    async def read(self) -> None:
        """Reads the list. Raises PlatformUnavailable."""
        if not self._machines:
            return
        listed = await self._list()
        reserved = {name: found for name, job in listed.items() if (found := self._reservation(name, job)) is not None}
        for name, machine in self._machines.items():
            machine.read({job: place for job, place in reserved.items() if place.machine == name})
        if not self._reading:
            self._ended.clear()
        self.places.note_change()
        left = [name for name in reserved if not self.keeper.has_listener(listed[name]["owner"])]
        if left:  # nobody else asks for word of their ends
            await self.keeper.request("follow", jobs={name: {} for name in left})

    async def until_read(self) -> None:
        """The ledgers know of all jobs that run. Raises PlatformUnavailable."""
        if not all(machine.is_read for machine in self._machines.values()):
            await self.keeper.request("hello")  # waits for a connection that is being made
            await self.read()

    async def hear_of_the_rest(self) -> None:
        """One of its users has left: jobs of theirs may still have places, and nobody asks for word of their ends."""
        if self.keeper.is_connected and self.keeper.is_needed:
            with suppress(PlatformError):  # they are read on the next connection
                await self.read()

    async def _list(self) -> dict[str, Job]:
        self._reading += 1
        try:
            return (await self.keeper.request("list"))["jobs"]  # type: ignore[no-any-return]
        finally:
            self._reading -= 1

    def _reservation(self, name: str, job: Job) -> Reservation | None:
        has_processes = job["state"] == protocol.RUNNING and name not in self._ended
        return Reservation.parse(job.get("reservation") or {}) if has_processes else None

    # What the keeper tells

    async def on_up(self) -> None:
        await self.read()
        self.note_up()

    def on_down(self, why: str) -> None:
        for machine in self._machines.values():
            machine.disconnect()
        self.note_down(why)

    def on_end(self, job_name: str) -> None:
        if self._machines:
            self._ended.add(job_name)
        for machine in self._machines.values():
            if machine.release(job_name):
                self.places.note_change()
