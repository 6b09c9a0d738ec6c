"""`local` in NNI's first format."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import NAS_MODE, TRIAL, FirstFormat

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
