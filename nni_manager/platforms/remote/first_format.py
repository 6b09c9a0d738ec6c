"""`remote` in NNI's first format."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import NAS_MODE, TRIAL, FirstFormat

FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "remoteConfig.reuse": "reuseMode",
        "machineList[].ip": "machineList[].host",
        "machineList[].port": "machineList[].port",
        "machineList[].username": "machineList[].user",
        "machineList[].passwd": "machineList[].password",
        "machineList[].sshKeyPath": "machineList[].sshKeyFile",
        "machineList[].passphrase": "machineList[].sshPassphrase",
        "machineList[].gpuIndices": "machineList[].gpuIndices",
        "machineList[].maxTrialNumPerGpu": "machineList[].maxTrialNumberPerGpu",
        "machineList[].useActiveGpu": "machineList[].useActiveGpu",
        "machineList[].pythonPath": "machineList[].pythonPath",
        "machineList[].preCommand": "machineList[].preCommand",
    },
    required=("trial.command", "trial.codeDir", "machineList"),
    dropped=NAS_MODE,
    ours=("machineList[].preCommand",),
)
