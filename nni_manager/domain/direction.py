"""The direction of an experiment: whether greater or smaller results are better.

One rule for what is called the best, the page, messages and the assessor: what the tuner's `optimize_mode` says; else,
for a tuner that goes by no results, what the assessor's says; else NNI's default for the tuner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.metrics import OptimizeMode

#: Tuners, by name or class, in lower case, that minimize where nothing is written; all others maximize.
_MINIMIZE = frozenset(
    (
        *("tpe", "tpe_legacy", "anneal"),
        *("nni.algorithms.hpo.tpe_tuner.tpetuner", "nni.algorithms.hpo.hyperopt_tuner.hyperopttuner"),
    )
)
#: Tuners that propose the same whatever the results are.
_WITHOUT = frozenset(("random", "gridsearch", "grid", "batch", "batchtuner"))
#: Tuners of which NNI, in its first format, takes no arguments without this one.
_REQUIRED = frozenset(
    ("evolution", "regularizedevolutiontuner", "smac", "pbt", "pbttuner", "ppo", "ppotuner", "hyperband", "bohb")
)


def direction_of(config: Mapping[str, Any]) -> OptimizeMode:
    """The direction of a config, canonical or as NNI wrote it."""
    tuner: Mapping[str, Any] = config.get("tuner") or config.get("advisor") or {}
    name = str(tuner.get("name") or tuner.get("className") or "").lower()
    said = _said(tuner)
    if said is None and name in _WITHOUT:
        said = _said(config.get("assessor") or {})
    if said is None:
        said = OptimizeMode.MINIMIZE if name in _MINIMIZE else OptimizeMode.MAXIMIZE
    return OptimizeMode.MINIMIZE if said == OptimizeMode.MINIMIZE else OptimizeMode.MAXIMIZE


def must_say(name: str) -> bool:
    """Whether NNI refuses arguments for this tuner that do not say `optimize_mode`."""
    return name.lower() in _REQUIRED


def _said(algorithm: Mapping[str, Any]) -> object:
    return (algorithm.get("classArgs") or {}).get("optimize_mode")
