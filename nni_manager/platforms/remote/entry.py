"""An entry of `machineList`: the machine's address, the login to it, and what its trials get there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.platforms.remote.address import Address, Credential


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of `machineList`, with its address and credential as `Address` and `Credential` read them."""

    address: Address
    credential: Credential = field(repr=False)
    python_path: str
    pre_command: str
    #: The machine takes no new jobs.
    is_drained: bool
    use_active_gpu: bool = False
    max_trial_number_per_gpu: int | None = None
    gpu_indices: tuple[int, ...] | None = None

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Entry:
        return cls(
            address=Address.of(machine), credential=Credential.of(machine),
            python_path=machine.get("pythonPath", ""), pre_command=machine.get("preCommand", ""),
            is_drained=machine.get("drain", False), use_active_gpu=machine.get("useActiveGpu", False),
            max_trial_number_per_gpu=machine.get("maxTrialNumberPerGpu"),
            gpu_indices=tuple(machine["gpuIndices"]) if machine.get("gpuIndices") else None,
        )  # fmt: skip
