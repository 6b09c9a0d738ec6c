"""Admission: whether an experiment can be made of a valid config here, by the platform's own word and by what no
platform can do yet; and whether it says which results are better.

`nnictl config check` and `create` ask the same.

Nobody should find out at the end that the search went the other way.
"""

from __future__ import annotations

from nni_manager.config.algorithms import TUNERS
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ConfigWarning, ExperimentSpec
from nni_manager.platform_kit import registry
from nni_manager.store import stored_config


def check(spec: ExperimentSpec) -> None:
    """Raises InvalidInput."""
    for service in spec.platforms:
        registry.adapter_of(service).check(spec, service)
    if spec.shared_storage is not None:
        raise InvalidInput(
            "sharedStorage: is not in this version yet, nothing would be mounted; remove this section, mount the"
            " storage yourself where trials run, and use its folder there in trialCommand"
        )


_NAME = "optimize_mode"


def without_direction(spec: ExperimentSpec, file: str) -> list[ConfigWarning]:
    """A warning where a built-in tuner goes by its default."""
    tuner = spec.tuner
    if _NAME not in TUNERS.arguments.get(tuner.name, {}) or tuner.class_args.get(_NAME) is not None:
        return []
    better = "greatest" if stored_config.maximizes(spec.canonical) else "smallest"
    message = f"is not written, so {better} results count as best; write maximize or minimize"
    return [ConfigWarning(code="NO_DIRECTION", message=message, field=f"tuner.classArgs.{_NAME}", file=file)]
