"""The config section of `remote`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.section_model import GpuIndices, Part, PlatformSection, Remark, marked, secret

DEFAULT_KEY_FILE = "~/.ssh/id_rsa"


class Machine(Part):
    """One machine, reached by SSH."""

    host: str = Field(min_length=1, description="Name or address.")
    port: int = Field(default=22, ge=1, le=65535, description="TCP port of its SSH server.")
    user: str = Field(min_length=1, description="Who logs in.")
    password: str | None = secret("Password of that user. Where it is given, `sshKeyFile` is not used.", default=None)
    ssh_key_file: str | None = marked(
        f"Private key, of whoever runs the manager. Default: `{DEFAULT_KEY_FILE}`.",
        default=None, format="file", unless=("password",), fallback=DEFAULT_KEY_FILE,
    )  # fmt: skip
    ssh_passphrase: str | None = secret("What the private key is locked with.", default=None)
    use_active_gpu: bool = Field(default=False, description="Whether GPUs that other processes use may be taken.")
    max_trial_number_per_gpu: int = Field(default=1, gt=0, description="How many trials may share a GPU at a time.")
    gpu_indices: GpuIndices | None = marked(
        'Indices of the GPUs that may be used: [0, 1], 0 or "0,1". Default: all.', default=None, format="gpu-indices"
    )
    python_path: str | None = Field(
        default=None, min_length=1, description="Folder on the machine that is put in front of PATH; no interpreter."
    )
    pre_command: str | None = marked(
        "Shell command that runs before the trial's, of NNI before 2.0.", default=None, opaque=True, min_length=1
    )


class RemoteConfig(PlatformSection):
    """``trainingService: {platform: remote, …}``."""

    platform: Literal["remote"] = Field(default="remote", description="Always `remote`.")
    machine_list: list[Machine] = Field(min_length=1, description="The machines.")
    reuse_mode: bool = Field(default=False, description="Whether one runner on a machine runs many trials.")

    def faults(self, experiment: Json) -> Iterator[Remark]:
        for number, machine in enumerate(self.machine_list):
            if machine.max_trial_number_per_gpu != 1 and not self.trial_gpu_number:
                yield (
                    f"machineList[{number}].maxTrialNumberPerGpu",
                    "has a meaning only when trialGpuNumber is above 0; set that, or remove this field",
                )

    def warnings(self, experiment: Json) -> Iterator[Remark]:
        for number, machine in enumerate(self.machine_list):
            if machine.use_active_gpu and not self.trial_gpu_number:
                yield f"machineList[{number}].useActiveGpu", "changes nothing while trialGpuNumber is 0 or not set"
