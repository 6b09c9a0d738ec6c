"""The config section of `local`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.section_model import (
    NAS_MODE,
    TRIAL,
    FirstFormat,
    GpuIndices,
    PlatformSection,
    Remark,
    gpu_faults,
    gpu_warnings,
    marked,
)


class LocalConfig(PlatformSection):
    """The fields of ``trainingService: {platform: local, …}``."""

    platform: Literal["local"] = Field(default="local", description="Always `local`.")
    trial_code_directory: str | None = marked(
        "Folder in which trials start; it is not copied. Default: the top level's.", default=None, format="directory"
    )
    nni_manager_ip: str | None = Field(
        default=None, description="Accepted for compatibility and ignored: local trials need no address."
    )
    use_active_gpu: bool | None = Field(
        default=None,
        validate_default=True,
        description="Use GPUs that other processes use. Required if `trialGpuNumber` is above 0.",
    )
    max_trial_number_per_gpu: int | None = Field(
        default=1,
        gt=0,
        description="Maximum number of trials that share a GPU, if `trialGpuNumber` is above 0. With `trialGpuMemory`, "
        "the default is the number that fit into its memory.",
    )
    trial_gpu_memory: int | None = marked(
        "GPU memory that a trial needs on each of its GPUs, such as `8GB`. Trials share a GPU while its memory "
        "suffices. Stored in MB. Default: the top level's.",
        default=None,
        gt=0,
        format="memory",
    )
    gpu_indices: GpuIndices | None = marked(
        'Indices of the GPUs that trials may use: `[0, 1]`, `0` or `"0,1"`. Default: all.',
        default=None,
        format="gpu-indices",
    )
    reuse_mode: bool = Field(default=False, description="Accepted for compatibility; it has no effect.")

    @model_validator(mode="before")
    @classmethod
    def _memory_may_be_the_only_limit(cls, values: Any) -> Any:
        has_memory = isinstance(values, dict) and values.get("trialGpuMemory") is not None
        return {"maxTrialNumberPerGpu": None, **values} if has_memory else values

    @field_validator("nni_manager_ip")
    @classmethod
    def _drop_address(cls, _address: str | None) -> None:
        return None

    @field_validator("use_active_gpu")
    @classmethod
    def _must_be_decided(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value is None and info.data.get("trial_gpu_number"):
            raise ValueError(
                "must be true or false when trialGpuNumber is above 0; set false unless trials may use occupied GPUs"
            )
        return value

    def faults(self, experiment: Json) -> Iterator[Remark]:
        yield from gpu_faults(
            self.trial_gpu_number,
            gpu_indices=self.gpu_indices,
            gpu_memory=self.trial_gpu_memory,
            max_trial_number_per_gpu=self.max_trial_number_per_gpu,
        )

    def warnings(self, experiment: Json) -> Iterator[Remark]:
        yield from gpu_warnings(self.trial_gpu_number, gpu_indices=self.gpu_indices, use_active_gpu=self.use_active_gpu)


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "localConfig.gpuIndices": "gpuIndices",
        "localConfig.maxTrialNumPerGpu": "maxTrialNumberPerGpu",
        "localConfig.useActiveGpu": "useActiveGpu",
    },
    required=("trial.command", "trial.codeDir"),
    dropped=NAS_MODE,
)
