"""The machines of one service: those in its list, and removed ones, which keep their jobs until these end.

Files of trials stay on removed machines until the experiment is deleted. The service's folder stores the machines:
config and secrets no longer contain a removed machine, but the manager must log in to it. Passwords are stored
separately, with all secrets of the experiment.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import BadCredentials, StoreError
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.contract import Host, JobPlan, Room
from nni_manager.platform_kit.payload import write_private
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.platforms.remote.config import RemoteConfig
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.machine_jobs import JobLocations

log = logging.getLogger(__name__)

_FILE = "machines.json"

#: Secret fields of an entry.
SECRETS = ("password", "sshPassphrase")

#: An entry of `machineList`, canonical.
Section = Mapping[str, Any]


def load_machines(folder: Path, private: PrivateText) -> dict[str, Section]:
    """The machines by the keys of their connections; empty if the file is missing or malformed.

    Raises OSError if the file or the secrets cannot be read, so that no machine is forgotten.
    """
    path = folder / _FILE
    try:
        sections = by_key(json.loads(path.read_text(encoding="utf-8")))
        secrets = json.loads(private.read() or "{}")
        return {key: {**section, **secrets.get(key, {})} for key, section in sections.items()}
    except FileNotFoundError:
        return {}
    except StoreError as error:
        raise OSError(str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the list of used machines is unreadable: %s: %s", path, error)
        return {}


def save_machines(folder: Path, sections: Mapping[str, Section], private: PrivateText) -> None:
    """Stores the machines, by key; secrets first, as earlier versions kept them in the file. Raises OSError."""
    found = {key: {name: one[name] for name in SECRETS if one.get(name)} for key, one in sections.items()}
    secrets = {key: own for key, own in found.items() if own}
    try:
        private.write(json.dumps(secrets) if secrets else "")
    except StoreError as error:
        raise OSError(str(error)) from error
    others = [{name: value for name, value in one.items() if name not in SECRETS} for one in sections.values()]
    text, path = json.dumps(others), folder / _FILE
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    write_private(path, text.encode())


def by_key(sections: Iterable[Section]) -> dict[str, Section]:
    return {Entry.of(section).address.key: section for section in sections}


#: Seconds that entering waits for machines; slower ones are used when they respond.
_ENTER_S = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A machine that is or was in the list."""

    entry: Entry
    #: It may have jobs, like every machine in the list.
    has_jobs: bool


class ExperimentMachines:
    """The machines of one service, by the keys of their connections; used between `start` and `stop`. `make`: creates
    one from its entry."""

    def __init__(self, host: Host, locations: JobLocations, make: Callable[[Entry], ExperimentMachine]) -> None:
        self._host = host
        self._folder = host.folder / host.service
        self._locations = locations
        self._make = make
        self._renewing: asyncio.Task[None] | None = None
        #: Serializes writes of the file of former machines.
        self._writing = asyncio.Lock()
        self._all: dict[str, ExperimentMachine] = {}
        #: Seconds to wait for the other machines when one is usable, as trials are spread over all of them.
        self.together_s = 2.0

    def __iter__(self) -> Iterator[ExperimentMachine]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: str) -> ExperimentMachine | None:
        return self._all.get(key)

    # Life cycle

    async def load(self, config: RemoteConfig) -> None:
        """Reads the machines of the list, and former ones that have jobs. Raises OSError."""
        known = await self.look_up(config)
        await self.keep(config)
        self._all = {key: self._make(one.entry) for key, one in known.items() if one.has_jobs}

    async def look_up(self, config: RemoteConfig) -> dict[str, Known]:
        """All machines of the list, and former ones that have had a job, by key. Raises OSError."""
        await self._locations.load()
        sections = await asyncio.to_thread(self._sections, config, self._locations.used())
        listed = {entry.address.key for entry in entries_of(config)}
        return {
            key: Known(
                entry=Entry.of(section if key in listed else {**section, "drain": True}),
                has_jobs=key in listed or self._locations.has_jobs_on(key),
            )
            for key, section in sections.items()
        }

    async def keep(self, config: RemoteConfig) -> None:
        """Writes the machines to the file that the next daemon reads. Raises OSError."""
        if self._host.folder.is_dir():  # a dry run has no folder
            async with self._writing:
                used = self._locations.used()
                await asyncio.to_thread(
                    lambda: save_machines(self._folder, self._sections(config, used), self._host.private)
                )

    async def start(self) -> None:
        """Starts using all machines. Raises BadCredentials if all of them refuse."""
        for site in self:
            site.start()
        await self._until_first()
        if all(site.refusal is not None for site in self):
            raise BadCredentials("; ".join(str(site.refusal) for site in self))

    async def stop(self) -> None:
        if self._renewing is not None:
            await asyncio.wait([self._renewing])
        machines, self._all = tuple(self), {}
        await asyncio.gather(*(site.stop() for site in machines))

    def renew(self, config: RemoteConfig) -> None:
        """Accepts other credentials for the same machines."""
        for entry in entries_of(config):
            if (site := self._all.get(entry.address.key)) is not None:
                site.renew(entry)
        self._renewing = asyncio.create_task(self.try_to_keep(config), name="machines written down")

    async def try_to_keep(self, config: RemoteConfig) -> None:
        """As `keep`, but a failure is only logged."""
        try:
            await self.keep(config)
        except OSError as error:
            log.warning("the list of machines was not stored: %s", error)

    def _sections(self, config: RemoteConfig, used: Collection[str]) -> dict[str, Section]:
        """The sections of all machines that are in the list or were used, by key. Blocks."""
        before = load_machines(self._folder, self._host.private)
        return {key: section for key, section in before.items() if key in used} | by_key(_listed(config))

    async def _until_first(self) -> None:
        """Returns when a machine is usable and the others have had a moment, when none is usable, or after a time
        limit."""
        waiting = {asyncio.create_task(site.first.wait()) for site in self}
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            while waiting:
                is_any_up = any(site.is_up for site in self)
                left_s = begun_s + (self.together_s if is_any_up else _ENTER_S) - loop.time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
        finally:
            for task in waiting:
                task.cancel()

    # Room without GPUs

    def plan(self, jobs: int) -> JobPlan:
        able = [site for site in self if site.takes_jobs]
        free = {site.entry.address.host: site.free_processors for site in able}
        places = []
        for _ in range(jobs if free else 0):
            host = max(free, key=lambda one: free[one])
            free[host] -= 1
            places.append(host)
        why_not = {site.entry.address.host: site.why for site in self if not site.takes_jobs}
        return JobPlan(places=places, why_not=why_not)

    def room(self) -> Room:
        if any(site.takes_jobs for site in self):
            return Room(why=self.why_not_all())
        return Room(free=0, why=self.why())

    def choose(self) -> ExperimentMachine | None:
        """The machine with most processors without a job of ours; None: no machine takes jobs."""
        able = [site for site in self if site.takes_jobs]
        return max(able, key=lambda site: site.free_processors, default=None)

    # Reasons

    def why_not_all(self) -> Wait | None:
        """The reasons of unusable machines while others are usable; None: there are none."""
        out = [site for site in self if site.is_out_of_use]
        return self.why(out) if out else None

    def why(self, machines: Collection[ExperimentMachine] = ()) -> Wait:
        """The reasons why machines take no jobs: these, or all of them."""
        machines = machines or tuple(self)
        answers = any(site.is_up or site.is_left_alone for site in machines)
        code = WaitCode.PLATFORM_UNAVAILABLE if answers else WaitCode.MACHINE_DOWN
        details = {"machines": {site.entry.address.host: site.why for site in machines}}
        return Wait(code=code, sentence="; ".join(site.why for site in machines), details=details)


def entries_of(config: RemoteConfig) -> list[Entry]:
    """The entries of the section's `machineList`."""
    return [Entry.of(section) for section in _listed(config)]


def _listed(config: RemoteConfig) -> list[Section]:
    """The entries as stored, in camelCase."""
    return [machine.model_dump(by_alias=True, exclude_none=True) for machine in config.machine_list]
