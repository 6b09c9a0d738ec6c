"""The training services of one open experiment: added, changed and removed while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nni_manager.config import credentials
from nni_manager.domain.errors import StoreError
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Host, Platform
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.code import CodeArchive, archive_of
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.turns.deliveries import JobMessages
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import Make, TrainingService
from nni_manager.store import private
from nni_manager.store.database import Database
from nni_manager.store.experiment import jobs
from nni_manager.store.folder import Folder

if TYPE_CHECKING:
    from nni_manager.scheduler.experiments.shared_parts import SharedParts


class Services:
    """The training services of an experiment, by name in `all`, a mapping shared with its loop. Removed ones stay until
    they have no attempts.
    """

    def __init__(
        self,
        *,
        experiment_id: str,
        folder: Folder,
        database: Database,
        shared: SharedParts,
        inbox: Inbox,
        messages: JobMessages,
        changed: Callable[[], None],
        spec: LiveSpec,
        silence_s: Callable[[str], float | None] = lambda job_name: None,
        storage_key: str = "",
    ) -> None:
        self.all: dict[str, TrainingService] = {}
        #: Service → code archive.
        self._code: dict[str, CodeArchive] = {}
        #: Reference → value.
        self._secrets: Mapping[str, str] = {}
        self._experiment_id = experiment_id
        self._folder = folder
        self._database = database
        self._shared = shared
        self._inbox = inbox
        self._messages = messages
        self._changed = changed
        self._spec = spec
        self._silence_s = silence_s
        self._storage_key = storage_key

    def code(self, service: str) -> CodeArchive | None:
        """The code archive of this service; None: no code is sent."""
        known = self.all.get(service)
        return self._code[service] if known is not None and known.platform.capabilities.ships_code else None

    async def close_code(self) -> None:
        """Stops packing code."""
        await asyncio.gather(*(archive.close() for archive in self._code.values()))

    def add(self, platform: PlatformSpec, secrets: Mapping[str, str], *, is_removed: bool = False) -> TrainingService:
        """Adds a service. `secrets`: reference → value. Raises InvalidInput for a platform that cannot be imported."""
        name = platform.service
        self._secrets = secrets
        self._code[name] = archive_of(self._spec.now, platform, self._folder.code)
        service = TrainingService(
            spec=platform,
            make=self._maker(platform, secrets),
            inbox=self._inbox,
            database=self._database,
            clock=self._shared.clock,
            changed=self._changed,
            entered=lambda adapter: self._note_entered(name, adapter),
            trials=self._folder.trials,
            max_log_bytes=self._spec.now.max_log_bytes,
        )
        service.is_removed = is_removed
        self.all[name] = service
        return service

    def change(self, platform: PlatformSpec, secrets: Mapping[str, str]) -> None:
        """Changes a service's settings; a removed one is used again."""
        self._secrets = secrets
        service = self.all[platform.service]
        service.is_removed = False
        if service.wanted.settings != platform.settings:
            service.change(platform, self._maker(platform, secrets))
        else:
            self.renew(service, secrets)
            service.try_again()

    def renew(self, service: TrainingService, secrets: Mapping[str, str]) -> None:
        """Passes changed secrets to a service."""
        self._secrets = secrets
        if service.wanted is service.spec:
            service.platform.renew(credentials.adapter_config(service.spec, secrets))
        else:
            service.change(service.wanted, self._maker(service.wanted, secrets))

    async def remove_idle(self) -> list[TrainingService]:
        """Takes removed services without attempts out of `all`, and returns them."""
        names = [name for name, service in self.all.items() if service.is_removed]
        if not names:
            return []
        idle = await self._database.read(lambda c: [name for name in names if not jobs.has_any(c, name)])
        return [self.all.pop(name) for name in idle if self.all[name].is_removed]

    async def forget_secrets(self) -> None:
        """Removes the secrets that no service refers to any more."""
        kept = credentials.known(self._spec.now, [service.spec for service in self.all.values()])
        with suppress(StoreError):  # else the next time
            await asyncio.to_thread(private.keep_only, self._folder.private, kept)

    def _maker(self, platform: PlatformSpec, secrets: Mapping[str, str]) -> Make:
        adapter = registry.adapter_of(platform)
        config = credentials.adapter_config(platform, secrets)
        return lambda wake: adapter(config, self._host(platform.service, wake))

    def _note_entered(self, service: str, adapter: Platform[Any]) -> None:
        preflight.is_over(self._shared.warnings, self._experiment_id, service)
        self._shared.leftovers.reached(adapter.connection_key(adapter.config), by=(self._experiment_id, service))

    def _host(self, name: str, wake: Callable[[str], None]) -> Host:
        database, messages = self._database, self._messages
        return Host(
            experiment_id=self._experiment_id,
            service=name,
            wake=wake,
            deliver=messages.deliver,
            followed=lambda names: database.read(lambda c: jobs.followed(c, name, names)),
            connections=self._shared.connections,
            folder=self._folder.path,
            code=self._code[name].path,
            register=messages.register,
            exited=messages.exited,
            silence_s=self._silence_s,
            max_log_bytes=self._spec.now.max_log_bytes,
            shared_storage=lambda: credentials.filled_storage(self._spec.now, self._secrets),
            private=private.ServiceText(self._folder.private, name),
            storage_key=self._storage_key,
        )
