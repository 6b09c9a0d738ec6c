"""The config that an experiment at work goes by."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.experiment import ExperimentSpec


@dataclass(slots=True)
class LiveSpec:
    """One object for loop, tuner and jobs: a change reaches all of them at once."""

    now: ExperimentSpec
