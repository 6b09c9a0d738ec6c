"""`adl` in NNI's first format, the only one in which NNI has it."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import TRIAL, FirstFormat

FIRST_FORMAT = FirstFormat(
    fields={
        "trial.codeDir": "trialCodeDirectory",
        **{old: new for old, new in TRIAL.items() if old != "trial.codeDir"},
        "trial.image": "dockerImage",
        "trial.namespace": "namespace",
        "trial.adaptive": "adaptive",
        "trial.cpuNum": "trialCpuNumber",
        "trial.memorySize": "trialMemorySize",
        "trial.imagePullSecrets[].name": "imagePullSecrets[].name",
        "trial.nfs.server": "nfs.server",
        "trial.nfs.path": "nfs.path",
        "trial.nfs.containerMountPath": "nfs.containerMountPath",
        "trial.checkpoint.storageClass": "checkpoint.storageClass",
        "trial.checkpoint.storageSize": "checkpoint.storageSize",
    },
    required=("trial.codeDir", "trial.command", "trial.gpuNum", "trial.image"),
)
