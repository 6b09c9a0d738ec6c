"""`dlts` in NNI's first format, the only one in which NNI has it."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import TRIAL, FirstFormat

FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.image": "dockerImage",
        "dltsConfig.dashboard": "dashboard",
        "dltsConfig.cluster": "cluster",
        "dltsConfig.team": "team",
        "dltsConfig.email": "email",
        "dltsConfig.password": "password",
    },
    required=("trial.command", "trial.codeDir", "trial.gpuNum", "trial.image", "dltsConfig"),
)
