"""The direction of an experiment: whether greater or smaller results are better.

One rule for what is called the best, the page, messages and the assessor: what the tuner's `optimize_mode` says; else,
for a tuner that goes by no results, what the assessor's says; else NNI's default for the tuner. Of several objectives it
is the first one's.
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
    said = _said_in(config)
    if said is None:
        return OptimizeMode.MINIMIZE if _name(config) in _MINIMIZE else OptimizeMode.MAXIMIZE
    return OptimizeMode.MINIMIZE if said == OptimizeMode.MINIMIZE else OptimizeMode.MAXIMIZE


def is_said(config: Mapping[str, Any]) -> bool:
    """Whether the config writes its direction."""
    return _said_in(config) is not None


def must_say(name: str) -> bool:
    """Whether NNI refuses arguments for this tuner that do not say `optimize_mode`."""
    return name.lower() in _REQUIRED


def _said_in(config: Mapping[str, Any]) -> object:
    if objectives := config.get("objectives"):
        return next(iter(objectives.values()))
    said = _said(_tuner(config))
    return _said(config.get("assessor") or {}) if said is None and _name(config) in _WITHOUT else said


def _tuner(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("tuner") or config.get("advisor") or {}


def _name(config: Mapping[str, Any]) -> str:
    return str(_tuner(config).get("name") or _tuner(config).get("className") or "").lower()


def _said(algorithm: Mapping[str, Any]) -> object:
    return (algorithm.get("classArgs") or {}).get("optimize_mode")
