"""A keeper as experiments share it: the health of its connection, and the ledgers of the machines whose jobs it keeps.

GPUs are read when the keeper is connected, before a job gets one, repeatedly while jobs wait for one, and for display.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from nni_manager.domain.errors import PlatformError
from nni_manager.machines.gpu_sample import GpuSample
from nni_manager.machines.keeper.client import Job, Keeper
from nni_manager.machines.ledger import MachineLedger, Reservation
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.tasks import ended
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Key of the keeper of this machine.
LOCAL = "keeper:local"
#: Seconds after which a GPU reading is too old for granting a GPU, or for explaining a wait.
GPU_AGE_S = 2.0
#: Seconds that a display of GPUs waits for a driver: most take milliseconds, a hanging one never answers.
LOOK_S = 1.0


class KeeperConnection(Connection):
    """The connection to a keeper, and its `Watcher`: its list is read into the ledgers before listeners are called."""

    def __init__(self, keeper: Keeper, places: Places, key: str = LOCAL) -> None:
        super().__init__(key)
        self.keeper = keeper
        self.places = places
        self._machines: dict[str, MachineLedger] = {}
        #: List requests in progress, and jobs that ended meanwhile.
        self._reading = 0
        self._ended: set[str] = set()
        #: Time of the last GPU reading, by a monotonic clock.
        self._gpus_read_s: float | None = None
        self._gpus_wanted = asyncio.Event()
        self._gpu_reader: asyncio.Task[None] | None = None
        #: The reading that displays of GPUs wait for.
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self.keeper.watchers.append(self)

    async def close(self) -> None:
        self.keeper.watchers.remove(self)
        if self._gpu_reader is not None:
            self.places.on_want.remove(self._gpus_wanted.set)
            self.places.on_look.remove(self._look)
            await ended(self._gpu_reader, self._looking)
        self.on_down("it is not in use")

    async def serve(self, machines: Sequence[KeeperMachine]) -> None:
        """Notes that jobs on these machines belong to this keeper; at most one of the machines has GPUs."""
        for declared in machines:
            self._machines[declared.name] = self.places.machine(declared)
        if self._gpu_machine is not None and self._gpu_reader is None:
            self._gpu_reader = asyncio.create_task(self._read_gpus_while_wanted(), name=f"GPUs of {self.key}")
            self.places.on_want.append(self._gpus_wanted.set)
            self.places.on_look.append(self._look)
        if self.keeper.is_connected:
            await self.read()

    async def read(self) -> None:
        """Reads the keeper's list of jobs into the ledgers. Raises PlatformUnavailable."""
        if not self._machines:
            return
        listed = await self._list()
        reserved = {name: found for name, job in listed.items() if (found := self._reservation(name, job)) is not None}
        for name, machine in self._machines.items():
            machine.read({job: place for job, place in reserved.items() if place.machine == name})
        if not self._reading:
            self._ended.clear()
        self._gpus_wanted.set()
        self.places.note_change()
        left = [name for name in reserved if not self.keeper.has_listener(listed[name]["owner"])]
        if left:  # no other request queries their ends
            await self.keeper.request("follow", jobs={name: {} for name in left})

    async def until_read(self) -> None:
        """Returns when the ledgers contain all running jobs. Raises PlatformUnavailable."""
        if not all(machine.is_read for machine in self._machines.values()):
            await self.keeper.request("hello")  # waits while connecting
            await self.read()

    async def read_again(self) -> None:
        """Reads the list again when a user has left: its jobs may have places, and their ends are not followed."""
        if self.keeper.is_connected and self.keeper.is_needed:
            with suppress(PlatformError):  # they are read on the next connection
                await self.read()

    async def _list(self) -> dict[str, Job]:
        self._reading += 1
        try:
            return (await self.keeper.request("list"))["jobs"]  # type: ignore[no-any-return]  # JSON
        finally:
            self._reading -= 1

    def _reservation(self, name: str, job: Job) -> Reservation | None:
        has_processes = job["state"] in (protocol.PREPARING, protocol.RUNNING) and name not in self._ended
        return Reservation.parse(job.get("reservation") or {}) if has_processes else None

    # GPUs

    async def read_gpus(self, max_age_s: float = GPU_AGE_S) -> None:
        """Reads the machine's GPUs, unless it did within `max_age_s`. Raises PlatformUnavailable; a driver's refusal is
        a reading."""
        machine = self._gpu_machine
        if machine is None or (self._gpus_read_s is not None and time.monotonic() - self._gpus_read_s <= max_age_s):
            return
        answer = (await self.keeper.request("facts", gpus=max_age_s))["gpus"]
        self._gpus_read_s = time.monotonic() - answer["age_s"]
        reading = GpuSample.parse(answer)
        if reading.error and (machine.reading is None or machine.reading.error != reading.error):
            log.warning("the GPUs of %s cannot be read: %s", machine.called, reading.error)
        self.places.note_reading(machine, reading)

    async def _read_gpus_while_wanted(self) -> None:
        machine = self._gpu_machine
        assert machine is not None, "this task exists because of it"
        while True:
            await self._gpus_wanted.wait()
            self._gpus_wanted.clear()
            while self.keeper.is_connected and (
                machine.reading is None or self.places.line.is_waited_for(machine.name)
            ):
                with suppress(PlatformError):
                    await self.read_gpus(GPU_AGE_S / 2)
                await asyncio.sleep(GPU_AGE_S)

    async def _look(self) -> None:
        if not self.keeper.is_connected:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._try_reading(), name=f"look at GPUs of {self.key}")
        await asyncio.wait([self._looking], timeout=LOOK_S)

    async def _try_reading(self) -> None:
        with suppress(PlatformError):
            await self.read_gpus(GPU_AGE_S)

    @property
    def _gpu_machine(self) -> MachineLedger | None:
        return next((machine for machine in self._machines.values() if machine.has_gpus), None)

    # Reports of the keeper

    async def on_up(self) -> None:
        self._gpus_read_s = None
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
