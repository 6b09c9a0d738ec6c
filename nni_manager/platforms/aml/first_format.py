"""`aml` in NNI's first format."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import TRIAL, FirstFormat

FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.image": "dockerImage",
        "amlConfig.subscriptionId": "subscriptionId",
        "amlConfig.resourceGroup": "resourceGroup",
        "amlConfig.workspaceName": "workspaceName",
        "amlConfig.computeTarget": "computeTarget",
        "amlConfig.maxTrialNumPerGpu": "maxTrialNumberPerGpu",
        "amlConfig.useActiveGpu": "useActiveGpu",
    },
    required=("trial.codeDir", "trial.command", "trial.image", "amlConfig"),
    ours=("useActiveGpu",),
)
