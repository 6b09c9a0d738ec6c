"""Reasons for the end of a trial or attempt, for decisions. A platform's native reason is only displayed."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a trial ended or an attempt was given up; empty for success."""

    NONE = ""
    USER_CODE = "USER_CODE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    GPU_OUT_OF_MEMORY = "GPU_OUT_OF_MEMORY"
    #: The command never ran: its trial runner could not start it.
    RUNNER_FAILED = "RUNNER_FAILED"
    SUBMIT_REJECTED = "SUBMIT_REJECTED"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    #: The function that the trial calls was sent by another version of Python.
    OTHER_PYTHON = "OTHER_PYTHON"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    CANCELLED_THERE = "CANCELLED_THERE"
    USER_REQUEST = "USER_REQUEST"
    ASSESSOR = "ASSESSOR"
    #: `maxTrialDuration` (EARLY_STOPPED), or the training service's own limit (FAILED).
    TIMEOUT = "TIMEOUT"
    EXPERIMENT_STOPPED = "EXPERIMENT_STOPPED"
