"""The training services of all open experiments, their machines, and the use of each GPU. From memory, except holds,
which are read from the experiments' databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nni_manager.domain import ids
from nni_manager.machines.gpu_sample import Card, Foreign
from nni_manager.machines.ledger import MachineLedger
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.machine_report import MachineReport
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.store.index import service_summary
from nni_manager.store.index.service_summary import ServiceSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnGpu:
    experiment_id: str
    trial_id: str
    #: Bytes of the card that it uses; 0: unknown, or none yet.
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU and what is on it; free: neither jobs nor foreign processes, and no error."""

    card: Card
    jobs: tuple[JobOnGpu, ...]
    others: tuple[Foreign, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    report: MachineReport
    gpus: tuple[Gpu, ...]
    #: Why its GPUs cannot be read; empty: they can, or nothing needs them.
    gpu_trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUse:
    """An experiment that uses the service."""

    experiment_id: str
    experiment_name: str
    #: State as the experiment sees it.
    service: ServiceSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """A training service, for all experiments that use it."""

    platform: str
    #: The remote side, without secrets; empty: machines have names of their own.
    address: str
    uses: tuple[ServiceUse, ...]
    machines: tuple[MachineState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InLine:
    """An experiment that waits for places of machines; the longest wait comes first."""

    experiment_id: str
    service: str
    #: Display names of machines that could have them.
    machines: tuple[str, ...]
    #: GPUs, or places, that each of its trials needs.
    places: int


async def read(experiments: Sequence[OpenExperiment], connections: Connections) -> list[ServiceState]:
    """The services in the order in which experiments were opened, with their GPUs now. Raises StoreError."""
    found: dict[tuple[str, str], ServiceState] = {}
    places = connections.shared_object(Places)
    await places.look()
    for experiment in experiments:
        seen = await _summaries(experiment)
        for name, service in experiment.loop.services.items():
            if name in seen:
                state = _state(service.platform, service.is_entered, places)
                use = ServiceUse(
                    experiment_id=experiment.id, experiment_name=experiment.spec.name or "", service=seen[name]
                )
                key = service.spec.name, state.address
                found[key] = _merged(found.get(key), replace(state, platform=service.spec.name, uses=(use,)))
    return list(found.values())


def line(connections: Connections) -> list[InLine]:
    """Experiments that wait for places, the next one first."""
    places = connections.shared_object(Places)
    return [
        InLine(
            experiment_id=owner.partition("/")[0],
            service=owner.partition("/")[2],
            machines=tuple(found.called if (found := places.find(name)) else name for name in demands),
            places=max((demand.count for demand in demands.values()), default=0),
        )
        for owner, demands in places.line.waiting
    ]


async def _summaries(experiment: OpenExperiment) -> Mapping[str, ServiceSummary]:
    live, config = experiment.loop.live_services, experiment.spec.canonical
    found = await experiment.database.read(lambda c: service_summary.summaries(c, config, live))
    return {service.name: service for service in found}


def _state(platform: Platform[Any], is_entered: bool, places: Places) -> ServiceState:
    """The service without its experiments; machines of a disconnected adapter are unknown."""
    reports = platform.machines() if is_entered else ()
    address = "" if reports else type(platform).connection_key(platform.config)
    machines = tuple(_machine(report, places.find(report.ledger) if report.ledger else None) for report in reports)
    return ServiceState(platform="", address=address, uses=(), machines=machines)


def _merged(before: ServiceState | None, more: ServiceState) -> ServiceState:
    """One service for two experiments; a machine that both use appears once."""
    if before is None:
        return more
    machines = {machine.report.key: machine for machine in before.machines}
    for machine in more.machines:
        known = machines.get(machine.report.key)
        machines[machine.report.key] = machine if known is None else _same_machine(known, machine)
    return replace(before, uses=(*before.uses, *more.uses), machines=tuple(machines.values()))


def _same_machine(first: MachineState, second: MachineState) -> MachineState:
    """What one experiment reports about it, and the GPUs that the other needs of it."""
    told = first if first.report.why or not second.report.why else second
    known = first if first.gpus or first.gpu_trouble else second
    return replace(told, gpus=known.gpus, gpu_trouble=known.gpu_trouble)


def _machine(report: MachineReport, ledger: MachineLedger | None) -> MachineState:
    if ledger is None:
        return MachineState(report=report, gpus=(), gpu_trouble="")
    reading = ledger.reading
    trouble = reading.error if reading is not None else "they were not read yet" if ledger.has_gpus else ""
    return MachineState(report=report, gpus=tuple(_gpus(ledger)), gpu_trouble=trouble)


def _gpus(ledger: MachineLedger) -> Iterator[Gpu]:
    users = ledger.users()
    for index, card in sorted(ledger.cards.items()):
        here = users.get(index, [])
        others = card.foreign if ledger.foreign_on(card, here) else ()
        yield Gpu(card=card, jobs=tuple(_job(user.job, card) for user in here), others=others)


def _job(name: str, card: Card) -> JobOnGpu:
    experiment_id, trial_id = ids.trial_of_job(name)
    return JobOnGpu(experiment_id=experiment_id, trial_id=trial_id, memory_bytes=card.used_by_job.get(name, 0))
