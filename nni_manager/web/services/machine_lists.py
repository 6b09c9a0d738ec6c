"""Changes of ``machineList`` in the training services of experiments, as `nnictl update platform` makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.machines.ssh.address import Address
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment

_LIST = "machineList"
#: The machines of a service → what they are to be; the same: no change.
Change = Callable[[Sequence[Mapping[str, Any]]], list[Mapping[str, Any]]]


async def add(service: ExperimentCommands, platform: str, machine: Mapping[str, Any]) -> None:
    """Adds a machine to the services of this platform of all open experiments. Raises InvalidInput that says where not,
    and why."""
    key = Address.of(machine).key

    def with_it(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        is_known = any(Address.of(one).key == key for one in machines)
        return list(machines) if is_known else [*machines, machine]

    await _change_all(service, platform, with_it)


async def drain(service: ExperimentCommands, platform: str, key: str, *, is_drained: bool) -> None:
    """Drains a machine for all open experiments, or takes that back; raises as `add`."""

    def drained(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [{**one, "drain": is_drained} if Address.of(one).key == key else one for one in machines]

    await _change_all(service, platform, drained)


async def _change_all(service: ExperimentCommands, platform: str, change: Change) -> None:
    """One that refuses stops no other."""
    experiments = service.open_experiments
    outcomes = await asyncio.gather(*(_tried(service, one, platform, change) for one in experiments))
    names = [f"{one.spec.name} ({one.id})" if one.spec.name else one.id for one in experiments]
    done = [name for name, outcome in zip(names, outcomes, strict=True) if outcome is True]
    refused = [f"not for {name}: {why}" for name, why in zip(names, outcomes, strict=True) if isinstance(why, str)]
    if refused:
        raise InvalidInput("; ".join([f"done for {', '.join(done)}", *refused] if done else refused))
    if not done:
        raise InvalidInput(f"no open experiment has a service of {platform} that this changes")


async def _tried(service: ExperimentCommands, one: OpenExperiment, platform: str, change: Change) -> bool | str:
    """Whether it changed the experiment; a text: why it could not."""
    try:
        return await _change(service, one.id, platform, change)
    except (NniManagerError, OSError) as error:
        return str(error)


async def _change(service: ExperimentCommands, id: str, platform: str, change: Change) -> bool:
    is_changed = False

    def wish(spec: ExperimentSpec) -> ServiceChange | None:
        nonlocal is_changed
        given = spec.canonical["trainingService"]
        sections: list[Any] = given if isinstance(given, list) else [given]
        changed = [_changed(section, platform, change) for section in sections]
        is_changed = changed != sections
        return ServiceChange(sections=changed if isinstance(given, list) else changed[0]) if is_changed else None

    await service.change(id, {}, wish)
    return is_changed


def _changed(section: Mapping[str, Any], platform: str, change: Change) -> Mapping[str, Any]:
    if section.get("platform") != platform or not isinstance(section.get(_LIST), list):
        return section
    return {**section, _LIST: change(section[_LIST])}
