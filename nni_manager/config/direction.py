"""The direction of an experiment: whether its config says which results are better.

Nobody should find out at the end that the search went the other way.
"""

from __future__ import annotations

from nni_manager.config.algorithms import TUNERS
from nni_manager.domain.experiment import ConfigWarning, ExperimentSpec
from nni_manager.store import stored_config

_NAME = "optimize_mode"


def unwritten(spec: ExperimentSpec, file: str) -> list[ConfigWarning]:
    """A warning where a built-in tuner goes by its default."""
    tuner = spec.tuner
    if _NAME not in TUNERS.arguments.get(tuner.name, {}) or tuner.class_args.get(_NAME) is not None:
        return []
    better = "greatest" if stored_config.maximizes(spec.canonical) else "smallest"
    message = f"is not written, so {better} results count as best; write maximize or minimize"
    return [ConfigWarning(code="NO_DIRECTION", message=message, field=f"tuner.classArgs.{_NAME}", file=file)]
