"""The config of an experiment at work, as it is now."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.experiment import ExperimentSpec


@dataclass(slots=True)
class LiveSpec:
    """The experiment's config as it is now, one object for loop, tuner and jobs: a change reaches all at once."""

    now: ExperimentSpec
