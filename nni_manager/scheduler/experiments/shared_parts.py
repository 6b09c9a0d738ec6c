"""The parts shared by all experiments of a daemon."""

from __future__ import annotations

from dataclasses import dataclass, field

from nni_manager.config.settings import Settings
from nni_manager.domain.clock import Clock
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit.connections import Connections
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.daemon_warnings import DaemonWarnings
from nni_manager.scheduler.experiments.leftovers import Leftovers
from nni_manager.scheduler.experiments.submission import Endpoints
from nni_manager.scheduler.turns.trial_listener import TrialListener


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
