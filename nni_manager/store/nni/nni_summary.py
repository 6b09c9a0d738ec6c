"""The results that lists show of an experiment that NNI made, before its folder is converted."""

from __future__ import annotations

import json
import math
from collections import Counter

from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial import TrialStatus
from nni_manager.store import stored_config
from nni_manager.store.index.list_summary import Best, ListSummary
from nni_manager.store.nni.nni_records import NniExperiment, NniTrial


def summary_of(experiment: NniExperiment) -> ListSummary:
    """The summary, equal to the one after the folder is converted."""
    config = json.loads(experiment.params)
    maximizes = stored_config.maximizes(config)
    return ListSummary(
        counts=dict(Counter(trial.status for trial in experiment.trials)),
        trials_made=experiment.next_sequence_id,
        max_trial_number=config.get("maxTrialNumber"),
        optimize_mode=OptimizeMode.MAXIMIZE if maximizes else OptimizeMode.MINIMIZE,
        best=_best(experiment.trials, maximizes=maximizes),
    )


def _best(trials: tuple[NniTrial, ...], *, maximizes: bool) -> Best | None:
    found = [(value, trial) for trial in trials if (value := _result(trial)) is not None]
    if not found:
        return None
    sign = -1 if maximizes else 1
    value, trial = min(found, key=lambda one: (sign * one[0], one[1].sequence_id))
    return Best(trial_id=trial.id, value=value, parameters=trial.parameters.values)


def _result(trial: NniTrial) -> float | None:
    """The finite final result of a trial that succeeded."""
    value = trial.final.value if trial.final is not None else None
    is_result = trial.status is TrialStatus.SUCCEEDED and value is not None and math.isfinite(value)
    return value if is_result else None
