"""The current config of an open experiment."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.experiment import ExperimentSpec


@dataclass(slots=True)
class LiveSpec:
    """Holds the experiment's current config; loop, tuner and jobs share it, so that a change reaches all at once."""

    now: ExperimentSpec
