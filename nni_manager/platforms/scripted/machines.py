"""The cluster's machines: what a job needs, and which machines are reachable now.

Grants are in the daemon's ledger: experiments with the same machine names share its places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nni_manager.domain.service import WaitCode
from nni_manager.machines.ledger import Demand, Reservation
from nni_manager.machines.placement import Placement
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.config import ScriptedConfig

#: The variable that contains the name of a job's machine.
ENV_MACHINE = "NNI_MACHINE"
_PREFIX = "scripted:"


def of_keeper(config: ScriptedConfig) -> Sequence[KeeperMachine]:
    """The machines of the section; the keeper of this machine runs the jobs of all of them."""
    return [
        KeeperMachine(name=_PREFIX + machine.name, title=machine.name, places=machine.places)
        for machine in config.machines
    ]


def placement(config: ScriptedConfig, host: Host, wake: Callable[[], None]) -> Placement | None:
    """The placement of jobs on the section's machines; None: it has none, and jobs run anywhere."""
    if not config.machines:
        return None
    only = None if config.gpu_indices is None else frozenset(config.gpu_indices)
    demand = Demand(count=config.places_of_trial, share=config.max_trial_number_per_gpu, only=only)
    return Placement(
        host.connections.shared_object(Places),
        f"{host.experiment_id}/{host.service}",
        demands={machine.name: demand for machine in of_keeper(config)},
        code=WaitCode.QUOTA if config.trial_gpu_number is None else WaitCode.GPU,
        wake=wake,
    )


def machine_name(reservation: Reservation) -> str:
    """The name of a reservation's machine as in the config."""
    return reservation.machine.removeprefix(_PREFIX)


def ledger_name(machine: str) -> str:
    return _PREFIX + machine


def in_words(machine: str, places: tuple[int, ...]) -> str:
    """A machine and its places as text, such as ``m1, place 0``."""
    if not machine or not places:
        return machine
    return f"{machine}, place{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}"
