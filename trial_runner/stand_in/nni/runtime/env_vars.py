"""The variables that NNI sets for trials and tuners, as this process found them."""

from __future__ import annotations

import os
from types import SimpleNamespace


def _found(*names: str) -> SimpleNamespace:
    return SimpleNamespace(**{name: os.environ.get(name) for name in names})


trial_env_vars = _found(
    "NNI_PLATFORM",
    "NNI_EXP_ID",
    "NNI_TRIAL_JOB_ID",
    "NNI_SYS_DIR",
    "NNI_OUTPUT_DIR",
    "NNI_TRIAL_COMMAND_CHANNEL",
    "NNI_TRIAL_SEQ_ID",
    "MULTI_PHASE",
    "REUSE_MODE",
)
dispatcher_env_vars = _found(
    "SDK_PROCESS",
    "NNI_MODE",
    "NNI_CHECKPOINT_DIRECTORY",
    "NNI_LOG_DIRECTORY",
    "NNI_LOG_LEVEL",
    "NNI_INCLUDE_INTERMEDIATE_RESULTS",
    "NNI_TUNER_COMMAND_CHANNEL",
)
