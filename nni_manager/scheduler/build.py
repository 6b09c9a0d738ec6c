"""Builds what works on one experiment, from the bottom up: everybody is given finished things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from nni_manager.config.settings import Settings
from nni_manager.domain.clock import Clock
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.platform_kit.payload import with_stand_in
from nni_manager.scheduler.actions import Actions
from nni_manager.scheduler.beats import Beats
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.deliveries import Deliveries
from nni_manager.scheduler.experiment_loop import ExperimentLoop
from nni_manager.scheduler.inbox import Inbox
from nni_manager.scheduler.job_factory import JobFactory
from nni_manager.scheduler.job_messages import JobMessages
from nni_manager.scheduler.leftovers import Leftovers
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.runner_door import RunnerDoor
from nni_manager.scheduler.services import Services
from nni_manager.scheduler.training_service import TrainingService
from nni_manager.scheduler.tuner_feed import TunerFeed
from nni_manager.scheduler.tuner_hosts import HostPlace
from nni_manager.scheduler.turn import Result
from nni_manager.scheduler.view_door import ViewDoor
from nni_manager.scheduler.warnings import DaemonWarnings
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
    services: Services


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
        services = self._services(inbox, messages)
        actions = self._actions(inbox, feed, services.all, beats)
        loop = ExperimentLoop(
            experiment_id=self.row.id, spec=self.spec, database=self.database, inbox=inbox, feed=feed,
            services=services, actions=actions, beats=beats, runner_door=self.means.runner_door,
            clock=self.means.clock, safety_poll_s=self.means.settings.safety_poll_s, changed=self.changes.note,
            on_status=on_status,
        )  # fmt: skip
        return Parts(loop=loop, messages=messages, spec=self.spec, services=services)

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

    def _services(self, inbox: Inbox, messages: JobMessages) -> Services:
        services = Services(
            experiment_id=self.row.id, folder=self.folder, database=self.database, means=self.means, inbox=inbox,
            messages=messages, changed=self.changes.note, spec=self.spec,
        )  # fmt: skip
        for platform in self.spec.now.platforms:
            services.add(platform, self.secrets)
        for platform in self.removed:
            services.add(platform, self.secrets, is_removed=True)
        return services

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
