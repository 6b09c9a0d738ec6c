"""Changes of ``machineList`` in the training services of experiments, as `nnictl update platform` makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.errors import InvalidInput
from nni_manager.machines.ssh.address import Address
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment

_LIST = "machineList"
#: The machines of a service → what they are to be; the same: no change.
Change = Callable[[Sequence[Mapping[str, Any]]], list[Mapping[str, Any]]]


async def add(service: ExperimentCommands, platform: str, machine: Mapping[str, Any]) -> int:
    """Adds a machine to the services of this platform of all open experiments; returns to how many. Raises
    InvalidInput, ConfigInvalid."""
    key = Address.of(machine).key

    def with_it(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        is_known = any(Address.of(one).key == key for one in machines)
        return list(machines) if is_known else [*machines, machine]

    return await _change_all(service, platform, with_it)


async def drain(service: ExperimentCommands, platform: str, key: str, *, is_drained: bool) -> int:
    """Drains a machine for all open experiments, or takes that back; returns for how many."""

    def drained(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [{**one, "drain": is_drained} if Address.of(one).key == key else one for one in machines]

    return await _change_all(service, platform, drained)


async def _change_all(service: ExperimentCommands, platform: str, change: Change) -> int:
    done = 0
    for experiment in service.open_experiments:
        given = experiment.spec.canonical["trainingService"]
        sections: list[Any] = given if isinstance(given, list) else [given]
        changed = [_changed(section, platform, change) for section in sections]
        if changed != sections:
            await _apply(service, experiment, changed if isinstance(given, list) else changed[0])
            done += 1
    if not done:
        raise InvalidInput(f"no open experiment has a service of {platform} that this changes")
    return done


def _changed(section: Mapping[str, Any], platform: str, change: Change) -> Mapping[str, Any]:
    if section.get("platform") != platform or not isinstance(section.get(_LIST), list):
        return section
    return {**section, _LIST: change(section[_LIST])}


async def _apply(service: ExperimentCommands, experiment: OpenExperiment, sections: object) -> None:
    await service.change(experiment.id, {}, ServiceChange(sections=sections))
