"""Builds the parts of one open experiment, each from finished ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from nni_manager.domain.experiment import PlatformSpec, StoredExperiment
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.experiments.services import Services
from nni_manager.scheduler.experiments.shared_parts import SharedParts
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.scheduler.tuning.host import HostPlace
from nni_manager.scheduler.turns.actions import Actions, JobFactory
from nni_manager.scheduler.turns.deliveries import Deliveries, JobMessages
from nni_manager.scheduler.turns.experiment_loop import ExperimentLoop
from nni_manager.scheduler.turns.heartbeats import Heartbeats
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.scheduler.turns.turn import Result
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one open experiment."""

    loop: ExperimentLoop
    messages: JobMessages
    spec: LiveSpec
    services: Services


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
    interpreter: str
    changes: Changes
    #: See `store.experiment.experiments.nonce`.
    nonce: str
    #: See `platform_kit.contract.Host`.
    storage_key: str
    #: Reference → value.
    secrets: Mapping[str, str] = field(repr=False)
    #: Services that left the config.
    removed: tuple[PlatformSpec, ...]

    def parts(self, on_status: Callable[[Result], Awaitable[None]]) -> Parts:
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
        return Parts(loop=loop, messages=messages, spec=self.spec, services=services)

    def _feed(self, inbox: Inbox) -> TunerFeed:
        place = HostPlace(
            interpreter=self.interpreter,
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
        )

    def _messages(self, inbox: Inbox, feed: TunerFeed) -> JobMessages:
        return JobMessages(
            experiment_id=self.row.id,
            spec=self.spec,
            database=self.database,
            inbox=inbox,
            deliveries=Deliveries(self.database, inbox, self.shared.clock),
            judge=feed.judge,
            changed=self.changes.note,
            clock=self.shared.clock,
        )

    def _services(self, inbox: Inbox, messages: JobMessages, heartbeats: Heartbeats) -> Services:
        services = Services(
            experiment_id=self.row.id,
            folder=self.folder,
            database=self.database,
            shared=self.shared,
            inbox=inbox,
            messages=messages,
            changed=self.changes.note,
            spec=self.spec,
            silence_s=heartbeats.silence_s,
            storage_key=self.storage_key,
        )
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
            nonce=self.nonce,
            storage_key=self.storage_key,
        )
        return Actions(
            services=services,
            inbox=inbox,
            jobs=factory,
            spec=self.spec,
            heartbeats=heartbeats,
            want=feed.want,
            clock=self.shared.clock,
        )
