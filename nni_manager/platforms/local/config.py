"""The config section of `local`.

Values arrive canonical: keys in camelCase, paths absolute, GPU indices a list, and what the top level of the config
shares with the platforms (`trialCommand` and so on) already copied in. ``format`` in a field's schema tells the config
loader how to make its value so.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel


class LocalConfig(BaseModel):
    """``trainingService: {platform: local, …}``."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True
    )

    platform: Literal["local"] = Field(default="local", description="Always `local`.")
    trial_command: str | None = Field(
        default=None, min_length=1, description="Shell command of a trial. Default: the top level's."
    )
    trial_code_directory: str | None = Field(
        default=None,
        description="Folder that trials start in, used in place. Default: the top level's.",
        json_schema_extra={"format": "directory"},
    )
    # stands before the fields whose rules depend on it
    trial_gpu_number: int | None = Field(
        default=None,
        ge=0,
        description="GPUs of a trial. Not set: all GPUs visible, none reserved; 0: no GPU visible. "
        "Default: the top level's.",
    )
    trial_concurrency: int | None = Field(
        default=None, ge=1, description="Trials at a time here. Default: as many as in the whole experiment."
    )
    nni_manager_ip: str | None = Field(
        default=None, description="Accepted and dropped: trials on this machine need no address."
    )
    debug: bool = Field(default=False, description="Log more, skip the version check. Default: the top level's.")
    use_active_gpu: bool | None = Field(
        default=None,
        validate_default=True,
        description="Whether GPUs that other processes use may be taken; must be set when trialGpuNumber is above 0.",
    )
    max_trial_number_per_gpu: int = Field(
        default=1, gt=0, description="How many trials may share a GPU at a time, when trialGpuNumber is above 0."
    )
    gpu_indices: Annotated[list[int], Field(min_length=1)] | None = Field(
        default=None,
        description='Indices of the GPUs that may be used: [0, 1], 0 or "0,1". Default: all.',
        json_schema_extra={"format": "gpu-indices"},
    )
    reuse_mode: bool = Field(
        default=False, description="Accepted for NNI's sake; always true beside other platforms. Changes nothing."
    )

    @field_validator("nni_manager_ip")
    @classmethod
    def _drop_address(cls, _address: str | None) -> None:
        return None

    @field_validator("use_active_gpu")
    @classmethod
    def _must_be_decided(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value is None and _uses_gpus(info):
            raise ValueError("must be true or false when trialGpuNumber is above 0; false is the careful choice")
        return value

    @field_validator("max_trial_number_per_gpu")
    @classmethod
    def _needs_gpus(cls, value: int, info: ValidationInfo) -> int:
        if value != 1 and not _uses_gpus(info):
            raise ValueError("has a meaning only when trialGpuNumber is above 0; set that, or remove this field")
        return value


def _uses_gpus(info: ValidationInfo) -> bool:
    return (info.data.get("trial_gpu_number") or 0) > 0
