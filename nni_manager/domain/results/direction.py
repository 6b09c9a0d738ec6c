"""The direction of an experiment: whether greater or smaller results are better, and its origin.

The best trial, the page, messages and the assessor use the same rule. The first known value applies:

1. `objectives`; of several, the first one.
2. The tuner's `optimize_mode` in the file.
3. If the tuner ignores results, the assessor's `optimize_mode` in the file.
4. The default of the tuner's class.
5. The assessor's `optimize_mode` in the file.

Otherwise greater results count as better, as in NNI, and the direction counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.algorithm import ignores_results
from nni_manager.domain.experiment import ConfigWarning
from nni_manager.domain.metrics import OptimizeMode

#: The argument of tuners and assessors that sets the direction.
ARGUMENT = "optimize_mode"
#: Of a direction that nothing sets.
NOT_SET = "direction not set"

_NNI = "nni.algorithms.hpo."
#: Tuners, by name or class, in lower case, that minimize by default.
_MINIMIZE = frozenset(
    (
        *("tpe", "tpe_legacy", "anneal", "cmaes"),
        *(f"{_NNI}tpe_tuner.tpetuner", f"{_NNI}hyperopt_tuner.hyperopttuner"),
    )
)
#: Tuners, by name, in lower case, that maximize by default; NNI's other classes do, too.
_MAXIMIZE = frozenset(
    (
        *("evolution", "regularizedevolutiontuner", "gptuner", "gp", "smac", "hyperband", "bohb"),
        *("metis", "metistuner", "pbt", "pbttuner", "dngo", "dngotuner", "networkmorphism", "ppo", "ppotuner"),
    )
)
#: Tuners whose arguments NNI refuses without this one, in its first format.
_REQUIRED = frozenset(
    ("evolution", "regularizedevolutiontuner", "smac", "pbt", "pbttuner", "ppo", "ppotuner", "hyperband", "bohb")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    mode: OptimizeMode
    #: What decides in place of the file: ``default of TPE``, or `NOT_SET`; empty: the file states the direction.
    note: str = ""

    @property
    def maximizes(self) -> bool:
        """Whether greater results are better."""
        return self.mode is OptimizeMode.MAXIMIZE


def find(config: Mapping[str, Any], class_default: str = "") -> Direction:
    """The direction of a config, canonical or as NNI wrote it.

    `class_default`: ``maximize`` or ``minimize``, the default of the user's tuner class; empty: unknown.
    """
    if (stated := _stated(config)) is not None:
        return Direction(mode=_mode(stated))
    if default := class_default or _default(_key(config)):
        return Direction(mode=OptimizeMode(default), note=f"default of {_shown_name(config)}")
    if (stated := _argument(config.get("assessor") or {})) is not None:
        return Direction(mode=_mode(stated))
    return Direction(mode=OptimizeMode.MAXIMIZE, note=NOT_SET)


def warnings(config: Mapping[str, Any], class_default: str = "", *, file: str = "") -> tuple[ConfigWarning, ...]:
    """The warning about a direction that the file does not set, or empty."""
    found = find(config, class_default)
    if not found.note:
        return ()
    better = "highest" if found.maximizes else "lowest"
    has_argument = bool(_tuner(config).get("name")) or found.note != NOT_SET
    own = "" if has_argument else "; add that argument to the class if it is missing"
    message = f"not set, so the {better} result counts as best ({found.note}); set maximize or minimize{own}"
    field = f"{'tuner' if config.get('tuner') else 'advisor'}.classArgs.{ARGUMENT}"
    return (ConfigWarning(code="NO_DIRECTION", message=message, field=field, file=file),)


def must_say(name: str) -> bool:
    """Whether NNI requires `optimize_mode` among the arguments of this tuner."""
    return name.lower() in _REQUIRED


def _stated(config: Mapping[str, Any]) -> object:
    """The direction that the file sets for the tuner, or None."""
    if objectives := config.get("objectives"):
        return next(iter(objectives.values()))
    stated = _argument(_tuner(config))
    if stated is None and ignores_results(_key(config)):
        return _argument(config.get("assessor") or {})
    return stated


def _default(key: str) -> OptimizeMode | None:
    """NNI's default for a tuner; None without a default, or for another class."""
    if key in _MINIMIZE:
        return OptimizeMode.MINIMIZE
    is_known = key in _MAXIMIZE or (key.startswith(_NNI) and not ignores_results(key))
    return OptimizeMode.MAXIMIZE if is_known else None


def _mode(stated: object) -> OptimizeMode:
    return OptimizeMode.MINIMIZE if stated == OptimizeMode.MINIMIZE else OptimizeMode.MAXIMIZE


def _tuner(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("tuner") or config.get("advisor") or {}


def _key(config: Mapping[str, Any]) -> str:
    return str(_tuner(config).get("name") or _tuner(config).get("className") or "").lower()


def _shown_name(config: Mapping[str, Any]) -> str:
    tuner = _tuner(config)
    return str(tuner.get("name") or str(tuner.get("className") or "").rpartition(".")[2])


def _argument(algorithm: Mapping[str, Any]) -> object:
    return (algorithm.get("classArgs") or {}).get(ARGUMENT)
