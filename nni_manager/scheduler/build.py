"""Builds what works on one experiment, from the bottom up: everybody is given finished things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from nni_manager.config import credentials
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import Clock
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Host, Platform
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.platform_kit.payload import with_stand_in
from nni_manager.scheduler import preflight
from nni_manager.scheduler.actions import Actions
from nni_manager.scheduler.beats import Beats
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.code_archive import CodeArchive, archive_of
from nni_manager.scheduler.deliveries import Deliveries
from nni_manager.scheduler.experiment_loop import ExperimentLoop
from nni_manager.scheduler.inbox import Inbox
from nni_manager.scheduler.job_factory import JobFactory
from nni_manager.scheduler.job_messages import JobMessages
from nni_manager.scheduler.leftovers import Leftovers
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.runner_door import RunnerDoor
from nni_manager.scheduler.training_service import TrainingService
from nni_manager.scheduler.tuner_feed import TunerFeed
from nni_manager.scheduler.tuner_hosts import HostPlace
from nni_manager.scheduler.turn import Result
from nni_manager.scheduler.view_door import ViewDoor
from nni_manager.scheduler.warnings import DaemonWarnings
from nni_manager.store import jobs
from nni_manager.store.database import Database
from nni_manager.store.experiments import ExperimentRow
from nni_manager.store.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What all experiments of a daemon share."""

    settings: Settings
    keeper: Keeper
    connections: Connections
    runner_door: RunnerDoor
    view_door: ViewDoor
    clock: Clock
    warnings: DaemonWarnings
    leftovers: Leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What works on an experiment."""

    loop: ExperimentLoop
    messages: JobMessages
    spec: LiveSpec
    #: Training service → what is sent to its jobs.
    code: Mapping[str, CodeArchive]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One experiment's, from its open folder."""

    folder: Folder
    row: ExperimentRow
    spec: LiveSpec
    database: Database
    means: Means
    #: The caller's, at `create`.
    environment: Mapping[str, str] = field(repr=False)
    interpreter: str
    changes: Changes
    #: See `store.experiments.nonce`.
    nonce: str
    #: Reference → value.
    secrets: Mapping[str, str] = field(repr=False)
    #: Services that are in the config no more.
    removed: tuple[PlatformSpec, ...]

    def parts(self, on_status: Callable[[Result], Awaitable[None]]) -> Parts:
        """Raises InvalidInput for a platform that cannot be imported."""
        inbox = Inbox()
        beats = Beats(inbox.wake)
        feed = self._feed(inbox)
        messages = self._messages(inbox, feed)
        platforms = (*self.spec.now.platforms, *self.removed)
        code = {platform.service: archive_of(self.spec.now, platform, self.folder.code) for platform in platforms}
        services = {p.service: self._service(p, inbox, messages, code[p.service]) for p in platforms}
        actions = self._actions(inbox, feed, services, beats)
        loop = ExperimentLoop(
            experiment_id=self.row.id, spec=self.spec, database=self.database, inbox=inbox, feed=feed,
            services=services, actions=actions, beats=beats, runner_door=self.means.runner_door,
            clock=self.means.clock, safety_poll_s=self.means.settings.safety_poll_s, changed=self.changes.note,
            on_status=on_status,
        )  # fmt: skip
        sent = {name: code[name] for name, s in services.items() if s.platform.capabilities.ships_code}
        return Parts(loop=loop, messages=messages, spec=self.spec, code=sent)

    def _feed(self, inbox: Inbox) -> TunerFeed:
        place = HostPlace(
            interpreter=self.interpreter, environment=with_stand_in(self.environment), folder=self.folder.checkpoint,
            log_folder=self.folder.log,
        )  # fmt: skip
        return TunerFeed(
            self.database, self.spec, place, told=self.row.ended_trials,
            patience_s=self.means.settings.tuner_patience_s, wake=inbox.wake,
        )  # fmt: skip

    def _messages(self, inbox: Inbox, feed: TunerFeed) -> JobMessages:
        return JobMessages(
            experiment_id=self.row.id, spec=self.spec, database=self.database, inbox=inbox,
            deliveries=Deliveries(self.database, inbox, self.means.clock), judge=feed.judge,
            changed=self.changes.note, clock=self.means.clock,
        )  # fmt: skip

    def _service(
        self, platform: PlatformSpec, inbox: Inbox, messages: JobMessages, code: CodeArchive
    ) -> TrainingService:
        adapter = registry.adapter_of(platform)

        settings = credentials.filled(platform, self.secrets)

        def make(wake: Callable[[str], None]) -> Platform:
            return adapter(settings, self._host(platform, messages, code, wake))

        return TrainingService(
            spec=platform, make=make, inbox=inbox, database=self.database, clock=self.means.clock,
            changed=self.changes.note,
            entered=lambda: self._note_entered(platform.service, adapter.connection_key(settings)),
            trials=self.folder.trials,
        )  # fmt: skip

    def _note_entered(self, service: str, connection: str) -> None:
        preflight.is_over(self.means.warnings, self.row.id, service)
        self.means.leftovers.reached(connection, by=(self.row.id, service))

    def _host(
        self, platform: PlatformSpec, messages: JobMessages, code: CodeArchive, wake: Callable[[str], None]
    ) -> Host:
        name, database = platform.service, self.database
        return Host(
            experiment_id=self.row.id, service=name, wake=wake, deliver=messages.deliver,
            followed=lambda names: database.read(lambda c: jobs.followed(c, name, names)),
            connections=self.means.connections, folder=self.folder.path, code=code.path,
            greet=messages.greet, exited=messages.exited,
        )  # fmt: skip

    def _actions(self, inbox: Inbox, feed: TunerFeed, services: Mapping[str, TrainingService], beats: Beats) -> Actions:
        factory = JobFactory(
            experiment_id=self.row.id, spec=self.spec, folder_of_trials=self.folder.trials,
            caller_environment=self.environment, runner_door=self.means.runner_door, nonce=self.nonce,
        )  # fmt: skip
        return Actions(
            services=services,
            inbox=inbox,
            jobs=factory,
            spec=self.spec,
            beats=beats,
            want=feed.want,
            clock=self.means.clock,
        )
