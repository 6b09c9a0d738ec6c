"""A real service as a `World`, made of an experiment's config: trials on it are led over HTTP, nothing is played."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.config import credentials
from nni_manager.config.experiment_file import ParsedConfig, read_file
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import Json, PlatformSpec
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobSpec
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, LedWorld, Recorder
from tests.platforms.keeper_world import KeeperOfTest
from tests.platforms.role_commands import without_commands

_UNPLAYED = "a test cannot do this to a real service"
_UNSEEN = "a real service does not tell"
_UNASKED = "the config says nothing of it; the adapter's own tests have it"
_ABSENT = {
    **dict.fromkeys((Feature.OUTAGE, Feature.VANISH, Feature.HANG, Feature.LOST_ANSWERS), _UNPLAYED),
    **dict.fromkeys((Feature.ROOM, Feature.FOREIGN_JOBS, Feature.PORTAL, Feature.PENDING), _UNPLAYED),
    **dict.fromkeys((Feature.CALLS, Feature.TRACES, Feature.PACE, Feature.SHARED_CONNECTION), _UNSEEN),
    **dict.fromkeys((Feature.STATES, Feature.WAIT_REASONS, Feature.STORAGE, Feature.PUSH), _UNASKED),
    **dict.fromkeys(
        (Feature.CREDENTIALS, Feature.HOPELESS_WAITS, Feature.MACHINES, Feature.QUEUE, Feature.REPLICAS), _UNASKED
    ),
    **dict.fromkeys((Feature.TIME_LIMIT, Feature.ENDING_NOTICE, Feature.SECOND_RUN, Feature.OVERLOOKED), _UNASKED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the command line says of it."""

    #: The training service, as the config's section has it.
    name: str
    config: Path
    #: How trials reach this machine.
    address: str
    patience_s: float
    without: frozenset[Feature]
    #: Where is noted what was submitted, to be removed again whatever becomes of the test; None: nowhere.
    ledger: Path | None = None


class LiveWorld(LedWorld):
    """`directory`: of the test."""

    def __init__(self, directory: Path, service: Service) -> None:
        reading = read_file(service.config, environment=os.environ)
        super().__init__(directory, _section(reading, service), service.address)
        self.absent = {**_ABSENT, **dict.fromkeys(service.without, "left out on the command line")}  # type: ignore[misc]
        self.patience_s = service.patience_s  # type: ignore[misc]
        self.trial_gpu_number, self.grace_period_s = reading.spec.trial_gpu_number, reading.spec.grace_period_s
        self.secrets = (*reading.secrets.values(), "the-token-of-this-attempt")
        self._service = service
        self._settings = credentials.filled(self._section, reading.secrets)
        self._directory = directory

    async def open(self) -> None:
        await self._held.enter_async_context(self._kept())
        await super().open()

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """With a keeper on this machine, for adapters with jobs that run here."""
        with tempfile.TemporaryDirectory(prefix="nni-") as runtime:  # paths of sockets are short
            process = KeeperOfTest(self._directory / "keeper", Path(runtime) / "keeper.sock")
            self.keeper = Keeper(process.connect)
            run = asyncio.create_task(self.keeper.run(), name="keeper")
            try:
                yield
            finally:
                run.cancel()
                await asyncio.wait([run])
                await _ended(process)

    def made(self, recorder: Recorder, settings: Json) -> Platform[Any]:
        host = dataclasses.replace(recorder.host(self.keeper), service=self._section.service)
        config = registry.config_of(dataclasses.replace(self._section, settings=settings))
        return registry.adapter_of(self._section)(without_commands(config), host)

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        """Noted before it is submitted: what is noted is removed also after an end in the middle."""
        name = job_name(recorder.experiment_id, trial_id, 1)
        if self._service.ledger is not None and name not in self._jobs:
            with self._service.ledger.open("a") as ledger:
                ledger.write(json.dumps([recorder.experiment_id, str(recorder.folder), name]) + "\n")
        return super().job_of(recorder, trial_id)


async def _ended(keeper: KeeperOfTest) -> None:
    for process in keeper.started:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.wait)


def _section(reading: ParsedConfig, service: Service) -> PlatformSpec:
    found = [section for section in reading.spec.platforms if service.name in (section.service, section.name)]
    if not found:
        raise NniManagerError(f"{service.config} has no training service {service.name}")
    return found[0]
