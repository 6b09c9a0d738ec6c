"""Experiments from Python as programs for NNI write them, on nni-manager, which this Python must have."""

from nni.experiment.config import *  # noqa: F403
from nni.experiment.data import TrialHyperParameters, TrialJob, TrialMetricData, TrialResult
from nni.experiment.experiment import Experiment, RunMode

__all__ = [
    "Experiment",
    "RunMode",
    "TrialHyperParameters",
    "TrialJob",
    "TrialMetricData",
    "TrialResult",
    *config.__all__,  # noqa: F405
]
