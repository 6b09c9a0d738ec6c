"""The jobs of one experiment on one machine: its keeper's reports, with the machine's name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.ssh.address import Address
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.remote.job_locations import JobLocations
from trial_runner import protocol

#: Seconds for a machine to accept a cancellation; the stop of an experiment waits for it.
_STOP_PATIENCE_S = 5.0


class MachineJobs(KeeperJobs):
    """The jobs of one experiment at a machine's keeper. `on_up`, `on_down`: called when the keeper can be asked, and
    when it cannot any more; `explained`: makes a report with more to say; `started`, `refused`: called when the machine
    has started a job, and when it could not now, for a reason that is the machine's."""

    def __init__(
        self,
        host: Host,
        locations: JobLocations,
        address: Address,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        explained: Callable[[Observation], Observation],
        started: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        key = address.key

        async def known(names: Collection[str]) -> Collection[str]:
            return [name for name in names if locations.is_wanted(name) and locations.machine(name) in (key, None)]

        async def followed(names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
            found = await host.followed(names)
            return {name: at for name, at in found.items() if name in names or locations.machine(name) in (key, None)}

        super().__init__(
            replace(host, followed=followed), known=known, key=key, place=address.host, stop_patience_s=_STOP_PATIENCE_S
        )
        self._address = address
        self.unheard_of = replace(self.unheard_of, place=address.host)
        self._up = on_up
        self._down = on_down
        self._explained = explained
        self._started = started
        self._refused = refused
        self.is_up = False
        #: Names of jobs that run there or ran, as this daemon has heard.
        self.seen: set[str] = set()

    async def forget(self, names: Sequence[str]) -> None:
        await super().forget(names)
        self.seen.difference_update(names)

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        """The report on a job, with the machine it is on."""
        if job["state"] != protocol.PREPARING:
            self.seen.add(job["name"])
        report, host = self._explained(super().report_of(job)), self._address.host
        return replace(report, place=report.place or host)  # the ledger names the machine with its GPUs

    def on_changed(self, job_name: str, job: dict[str, Any]) -> None:
        if job["state"] == protocol.RUNNING:
            self._started()
        super().on_changed(job_name, job)

    def on_refused(self, job_name: str, kind: str, sentence: str) -> None:
        if kind == protocol.UNAVAILABLE:
            self._refused(sentence)
        super().on_refused(job_name, kind, sentence)

    async def on_connected(self) -> None:
        await super().on_connected()
        self.is_up = True
        self._up()
        self._host.wake("")

    def on_disconnected(self) -> None:
        self.is_up = False
        self._down()
        super().on_disconnected()
