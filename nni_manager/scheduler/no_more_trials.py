"""Why an experiment makes no more trials: a limit is reached, or its tuner is exhausted."""

from __future__ import annotations

from nni_manager.config.reading.scalars import seconds
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.index.overview import Overview

#: Statuses that mean an exhausted tuner if no limit is reached.
_EXHAUSTED = (ExperimentStatus.TUNER_NO_MORE_TRIAL, ExperimentStatus.DONE)


def sentence(found: Overview) -> str:
    """Why no more trials are made; empty: more may be. Given in every status, as it also limits a resume."""
    most, longest = found.config.get("maxTrialNumber"), found.config.get("maxExperimentDuration")
    reached = []
    if most is not None and found.row.next_sequence_id >= most:
        reached.append(f"maxTrialNumber ({most}) is reached")
    if longest is not None and found.exec_ms > seconds(longest) * 1000:
        reached.append(f"maxExperimentDuration ({longest}) is reached")
    if not reached and found.row.status in _EXHAUSTED:
        reached.append("the tuner has no more proposals")
    return " and ".join(reached)
