"""A training service with two machines; their GPUs are in the daemon's ledger, like reports of keepers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nni_manager.domain import ids
from nni_manager.machines.gpu_sample import Card, Foreign, GpuSample
from nni_manager.machines.ledger import Demand
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.machine_report import MachineReport
from tests.api.services import Acted
from tests.api.world import World

GIB = 2**30
FIRST, SECOND = "ssh:me@hostA:22", "ssh:me@hostB:22"


class OnMachines(Acted):
    """A service with the machines of its section."""

    changeable = frozenset({"machineList"})

    def machines(self) -> Sequence[MachineReport]:
        return [_report(machine) for machine in _listed(self.config)]


def _listed(config: Any) -> list[dict[str, Any]]:
    found = config["machineList"] if isinstance(config, dict) else config.model_dump(by_alias=True)["machineList"]
    return list(found)


def _report(machine: dict[str, Any]) -> MachineReport:
    key = f"ssh:{machine['user']}@{machine['host']}:{machine.get('port', 22)}"
    drained = bool(machine.get("drain"))
    return MachineReport(
        name=machine["host"],
        key=key,
        ledger=f"remote:{key}",
        why=f"{machine['host']} is drained" if drained else "",
        is_drained=drained,
        is_listed=True,
        jobs=1,
        processors=16,
    )


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: OnMachines)
    for name in ("trouble", "rooms", "made"):
        monkeypatch.setattr(OnMachines, name, {})


def section(*hosts: str) -> dict[str, Any]:
    machines = [{"host": host, "user": "me", "password": f"s3cret of {host}"} for host in hosts]
    return {"platform": "remote", "trialGpuNumber": 1, "machineList": machines}


def occupy(world: World, experiment_id: str, trial_id: str) -> None:
    """GPUs of hostA: 0 has the trial, 1 is free, 2 is used by others, 3 is broken. hostB is unreadable. One waits."""
    places = world.commands.connections.shared_object(Places)
    first = places.machine(KeeperMachine(name=f"remote:{FIRST}", title="hostA", places=None))
    second = places.machine(KeeperMachine(name=f"remote:{SECOND}", title="hostB", places=None))
    job = ids.job_name(experiment_id, trial_id, 1)
    cards = (
        _card(0, used_by_job={job: 3 * GIB}),
        _card(1),
        _card(2, foreign=(Foreign(pid=4242, user="kim", memory_bytes=11 * GIB),), foreign_bytes=11 * GIB),
        _card(3, error="GPU is lost"),
    )
    places.note_reading(first, GpuSample(cards=cards, source="nvml"))
    places.note_reading(second, GpuSample(cards=(), error="no driver answers"))
    first.read({})
    reserved = first.reserve(job, Demand(count=1, only=frozenset({0})))
    assert reserved is not None and reserved.places == (0,)
    places.line.want(f"{experiment_id}/remote", 1, {first.name: Demand(count=2)}, lambda: None)


def _card(index: int, **values: Any) -> Card:
    return Card(index=index, uuid=f"GPU-{index}", name="H100", memory_bytes=80 * GIB, **values)
