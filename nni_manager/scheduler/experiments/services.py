"""The parts of one open experiment, each built from finished ones, and the parts that all experiments share.

Training services are added, changed and removed while the experiment runs.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nni_manager.config import credentials, experiment_file
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import Conflict, StoreError
from nni_manager.domain.experiment import LiveSpec, PlatformSpec, StoredExperiment
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Host, Platform
from nni_manager.scheduler.changes import Changes, DaemonWarnings
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.code import CodeArchive, archive_of
from nni_manager.scheduler.experiments.leftovers import Leftovers
from nni_manager.scheduler.experiments.submission import Endpoints
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.scheduler.tuning.host import HostPlace
from nni_manager.scheduler.turns.actions import Actions, JobFactory
from nni_manager.scheduler.turns.code_watch import CodeWatch
from nni_manager.scheduler.turns.deliveries import JobMessages
from nni_manager.scheduler.turns.experiment_loop import ExperimentLoop
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.output_watch import OutputWatch
from nni_manager.scheduler.turns.training_service import Make, TrainingService
from nni_manager.scheduler.turns.trial_listener import Heartbeats, TrialListener
from nni_manager.scheduler.turns.turn import Result
from nni_manager.store import private, stored_config
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, jobs
from nni_manager.store.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The parts shared by all experiments of a daemon."""

    settings: Settings
    keeper: Keeper
    connections: Connections
    trial_listener: TrialListener
    endpoints: Endpoints
    clock: Clock
    warnings: DaemonWarnings
    leftovers: Leftovers
    #: Changes of any open experiment, and of the list.
    changes: Changes = field(default_factory=Changes)
    #: Identities that count as this data directory's, in addition to its own; empty text: experiments without one.
    former_identities: frozenset[str] = frozenset({""})

    @property
    def is_identity_lost(self) -> bool:
        """Whether this data directory got a new identity because its own was lost, and no user has confirmed it."""
        return "" not in self.former_identities

    def owns(self, owner: str) -> bool:
        """Whether an experiment with this owner is one of this data directory."""
        return owner == self.connections.identity or owner in self.former_identities

    def require_ours(self, row: StoredExperiment) -> None:
        """Raises Conflict for an experiment whose jobs another manager may control."""
        if not self.owns(row.owner):
            raise Conflict(
                f"it belongs to the manager {row.owner or '(unknown)'}, and {self.settings.data_dir} is"
                f" {self.connections.identity}. Was this directory's own identity lost? Then, if no other manager runs"
                " these trials: `nni-manager stop`, `nni-manager identity --moved`, and start the daemon again."
                f" Otherwise `nnictl resume {row.id}` takes the experiment over without the jobs it has elsewhere"
            )


class Services:
    """The training services of an experiment, by name in `all`, a mapping shared with its loop. Removed ones stay until
    they have no attempts.
    """

    def __init__(
        self,
        build: Build,
        inbox: Inbox,
        messages: JobMessages,
        silence_s: Callable[[str], float | None],
    ) -> None:
        self.all: dict[str, TrainingService] = {}
        #: Service → code archive.
        self._code: dict[str, CodeArchive] = {}
        #: Reference → value.
        self._secrets: Mapping[str, str] = {}
        self._build = build
        self._inbox = inbox
        self._messages = messages
        self._silence_s = silence_s

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
        self._code[name] = archive_of(self._build.spec.now, platform, self._build.folder.code)
        service = TrainingService(
            spec=platform,
            make=self._maker(platform, secrets),
            inbox=self._inbox,
            database=self._build.database,
            clock=self._build.shared.clock,
            changed=self._build.changes.note,
            entered=lambda adapter: self._note_entered(name, adapter),
            trials=self._build.folder.trials,
            max_log_bytes=self._build.spec.now.max_log_bytes,
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
        idle = await self._build.database.read(lambda c: [name for name in names if not jobs.has_any(c, name)])
        return [self.all.pop(name) for name in idle if self.all[name].is_removed]

    async def forget_secrets(self) -> None:
        """Removes the secrets that no service refers to."""
        in_use = [service.spec for service in self.all.values()]
        with suppress(StoreError):  # otherwise the next time
            await self._build.database.try_write(lambda c: _forget_secrets(c, self._build.folder, in_use))

    def _maker(self, platform: PlatformSpec, secrets: Mapping[str, str]) -> Make:
        adapter = registry.adapter_of(platform)
        config = credentials.adapter_config(platform, secrets)
        return lambda wake: adapter(config, self._host(platform.service, wake))

    def _note_entered(self, service: str, adapter: Platform[Any]) -> None:
        self._build.shared.warnings.clear(self._build.row.id, preflight.SERVICE_AWAY, service)
        self._build.shared.leftovers.reached(adapter.connection_key(adapter.config), by=(self._build.row.id, service))

    def _host(self, name: str, wake: Callable[[str], None]) -> Host:
        database, messages = self._build.database, self._messages
        return Host(
            experiment_id=self._build.row.id,
            service=name,
            wake=wake,
            deliver=messages.deliver,
            followed=lambda names: database.read(lambda c: jobs.followed(c, name, names)),
            stored=lambda job_name: database.read(lambda c: jobs.offsets(c, job_name)),
            connections=self._build.shared.connections,
            folder=self._build.folder.path,
            code=self._code[name].path,
            register=messages.register,
            exited=messages.exited,
            silence_s=self._silence_s,
            max_log_bytes=self._build.spec.now.max_log_bytes,
            shared_storage=lambda: credentials.filled_storage(self._build.spec.now, self._secrets),
            private=private.ServiceText(self._build.folder.private, name),
            storage_key=self._build.row.storage_key,
            caller_environment=self._build.environment,
        )


def _forget_secrets(connection: sqlite3.Connection, folder: Folder, in_use: Iterable[PlatformSpec]) -> None:
    """Keeps the secrets of the stored config and of the services `in_use`. It is a database write, so that it runs
    before or after a change that stores a config with its secrets, never in between."""
    spec = experiment_file.from_canonical(stored_config.read(experiments.load(connection).config, folder.database))
    private.keep_only(folder.private, credentials.known(spec, in_use))


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Builds the parts of an experiment from its open folder."""

    folder: Folder
    row: StoredExperiment
    spec: LiveSpec
    database: Database
    shared: SharedParts
    #: The creator's environment; may be filled later.
    environment: Mapping[str, str] = field(repr=False)
    changes: Changes
    #: Reference → value.
    secrets: Mapping[str, str] = field(repr=False)
    #: Services that left the config.
    removed: tuple[PlatformSpec, ...]

    def parts(self, on_status: Callable[[Result], Awaitable[None]]) -> tuple[ExperimentLoop, JobMessages, Services]:
        """The parts of the experiment. Raises InvalidInput for a platform that cannot be imported."""
        inbox = Inbox()
        inbox.removes_checkpoints = self.spec.now.kept_checkpoints is not None
        heartbeats = Heartbeats(inbox.wake)
        feed = self._feed(inbox)
        messages = self._messages(inbox, feed)
        services = self._services(inbox, messages, heartbeats)
        actions = self._actions(inbox, feed, services.all, heartbeats)
        loop = ExperimentLoop(
            experiment_id=self.row.id,
            spec=self.spec,
            database=self.database,
            inbox=inbox,
            feed=feed,
            services=services,
            actions=actions,
            heartbeats=heartbeats,
            trial_listener=self.shared.trial_listener,
            clock=self.shared.clock,
            safety_poll_s=self.shared.settings.safety_poll_s,
            changed=self.changes.note,
            on_status=on_status,
        )
        return loop, messages, services

    def _feed(self, inbox: Inbox) -> TunerFeed:
        place = HostPlace(
            interpreter=self.row.interpreter or sys.executable,
            environment=self.environment,
            folder=self.folder.checkpoint,
            log_folder=self.folder.log,
        )
        return TunerFeed(
            self.database,
            self.spec,
            place,
            reported=self.row.ended_trials,
            patience_s=self.shared.settings.tuner_patience_s,
            wake=inbox.wake,
            warn=lambda warning: self.shared.warnings.set(self.row.id, warning),
        )

    def _messages(self, inbox: Inbox, feed: TunerFeed) -> JobMessages:
        return JobMessages(
            experiment_id=self.row.id,
            spec=self.spec,
            database=self.database,
            inbox=inbox,
            judge=feed.judge,
            changed=self.changes.note,
            clock=self.shared.clock,
        )

    def _services(self, inbox: Inbox, messages: JobMessages, heartbeats: Heartbeats) -> Services:
        services = Services(self, inbox, messages, heartbeats.silence_s)
        for platform in self.spec.now.platforms:
            services.add(platform, self.secrets)
        for platform in self.removed:
            services.add(platform, self.secrets, is_removed=True)
        return services

    def _actions(
        self, inbox: Inbox, feed: TunerFeed, services: Mapping[str, TrainingService], heartbeats: Heartbeats
    ) -> Actions:
        factory = JobFactory(
            experiment_id=self.row.id,
            spec=self.spec,
            folder_of_trials=self.folder.trials,
            caller_environment=self.environment,
            trial_listener=self.shared.trial_listener,
            nonce=self.row.nonce,
            storage_key=self.row.storage_key,
        )
        return Actions(
            services=services,
            inbox=inbox,
            jobs=factory,
            spec=self.spec,
            heartbeats=heartbeats,
            want=feed.want,
            clock=self.shared.clock,
            code=self._code_watch(services),
            output=OutputWatch(
                services=services,
                database=self.database,
                spec=self.spec,
                trials=self.folder.trials,
                changed=self.changes.note,
            ),
        )

    def _code_watch(self, services: Mapping[str, TrainingService]) -> CodeWatch:
        return CodeWatch(
            services=services,
            database=self.database,
            spec=self.spec,
            leave_out=str(self.folder.path.parent),
            clock=self.shared.clock,
            changed=self.changes.note,
        )
