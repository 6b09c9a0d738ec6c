"""`openpai` in NNI's first format, where it is called `pai`; and what `paiYarn` had before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nni_manager.platform_kit.first_format import NAS_MODE, TRIAL, FirstFormat, Remark

_YARN = "belongs to PAI on YARN, which is no more"
_NO_GPU_SHARING = "PAI gives whole GPUs to trials"


def _host(raw: Any) -> object:
    """The cluster's address: those of the first format are of HTTP."""
    return f"http://{raw}" if isinstance(raw, str) and "://" not in raw and "{" not in raw else raw


def _faults(file: Mapping[str, Any]) -> Iterator[Remark]:
    trial = file.get("trial")
    if isinstance(trial, dict) and isinstance(shm := trial.get("shmMB"), int):
        memory = trial.get("memoryMB")
        if isinstance(memory, int) and shm > memory:
            yield "trial.shmMB", f"must be at most trial.memoryMB, {memory}"


FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.cpuNum": "trialCpuNumber",
        "trial.memoryMB": "trialMemorySize",
        "trial.image": "dockerImage",
        "trial.virtualCluster": "virtualCluster",
        "trial.paiStorageConfigName": "storageConfigName",
        "trial.paiConfigPath": "openpaiConfigFile",
        "trial.nniManagerNFSMountPath": "localStorageMountPoint",
        "trial.containerNFSMountPath": "containerStorageMountPoint",
        "paiConfig.userName": "username",
        "paiConfig.token": "token",
        "paiConfig.passWord": "password",
        "paiConfig.host": "host",
        "paiConfig.reuse": "reuseMode",
        "paiConfig.gpuNum": "/trialGpuNumber",
        "paiConfig.cpuNum": "trialCpuNumber",
        "paiConfig.memoryMB": "trialMemorySize",
    },
    required=("trial.codeDir", "trial.nniManagerNFSMountPath", "trial.containerNFSMountPath", "paiConfig"),
    values={"paiConfig.host": _host},
    dropped={
        **NAS_MODE,
        "paiConfig.maxTrialNumPerGpu": _NO_GPU_SHARING,
        "paiConfig.useActiveGpu": _NO_GPU_SHARING,
        "trial.authFile": _YARN,
        "trial.shmMB": _YARN,
        "trial.dataDir": _YARN,
        "trial.outputDir": _YARN,
        "trial.portList": _YARN,
    },
    faults=_faults,
    ours=("password",),
)
