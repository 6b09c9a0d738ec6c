"""Fields about GPUs that would do nothing, or leave no GPU to a trial: what is wrong with them, and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nni_manager.platform_kit.section_model import Remark

_NEEDS_GPUS = "has a meaning only when trialGpuNumber is above 0; set that, or remove this field"


def faults(
    gpu_number: int | None,
    *,
    gpu_indices: Sequence[int] | None,
    max_trial_number_per_gpu: int | None,
    gpu_memory: int | None = None,
    above: str = "",
) -> Iterator[Remark]:
    """Faults of the GPU fields of a section, or of a machine in it.

    `above`: what stands before the fields' names, e.g. ``machineList[0].``.
    """
    if not gpu_number:
        given = {"gpuIndices": gpu_indices, "trialGpuMemory": gpu_memory}
        yield from ((f"{above}{name}", _NEEDS_GPUS) for name, value in given.items() if value is not None)
        if max_trial_number_per_gpu not in (None, 1):
            yield f"{above}maxTrialNumberPerGpu", _NEEDS_GPUS
    elif gpu_indices is not None and len(gpu_indices) < gpu_number:
        names = "1 GPU" if len(gpu_indices) == 1 else f"{len(gpu_indices)} GPUs"
        yield (
            f"{above}gpuIndices",
            f"names {names}, and a trial needs {gpu_number}; name more, or lower trialGpuNumber",
        )


def warnings(gpu_number: int | None, *, use_active_gpu: bool | None, above: str = "") -> Iterator[Remark]:
    """Remarks on GPU fields that do nothing and are no fault, since NNI's own examples have them; see `faults`."""
    if use_active_gpu and not gpu_number:
        yield f"{above}useActiveGpu", "changes nothing while trialGpuNumber is 0 or not set"
