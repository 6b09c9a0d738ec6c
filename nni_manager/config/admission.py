"""Admission: whether an experiment can be made here of a valid config.

The platforms say whether they can run it, and whether their trials can mount its shared storage. A config that does not
say which results are better is warned of: nobody should find out at the end that the search went the other way.

`nnictl config check` and `create` ask the same.
"""

from __future__ import annotations

from nni_manager.config.algorithms import TUNERS
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ConfigWarning, ExperimentSpec, Json, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.store import stored_config


def check(spec: ExperimentSpec) -> None:
    """Checks that the platforms can run an experiment and mount its shared storage. Raises InvalidInput."""
    for service in spec.platforms:
        registry.adapter_of(service).check(spec, service)
        if spec.shared_storage is not None:
            _check_storage(service, spec.shared_storage)


def _check_storage(service: PlatformSpec, storage: Json) -> None:
    adapter = registry.adapter_of(service)
    if storage["storageType"] in adapter.mounts:
        return
    others = f" of storageType {storage['storageType']}" if adapter.mounts else ""
    instead = adapter.instead_of_shared_storage or f"mount it where {service.name} runs jobs"
    raise InvalidInput(
        f"sharedStorage: trials of {service.service} cannot work on shared storage{others}; remove this section, and"
        f" {instead}"
    )


_NAME = "optimize_mode"


def without_direction(spec: ExperimentSpec, file: str) -> list[ConfigWarning]:
    """The warning that a built-in tuner goes by its default `optimize_mode`, where the config does not write one."""
    tuner = spec.tuner
    if _NAME not in TUNERS.arguments.get(tuner.name, {}) or tuner.class_args.get(_NAME) is not None:
        return []
    better = "greatest" if stored_config.maximizes(spec.canonical) else "smallest"
    message = f"is not written, so {better} results count as best; write maximize or minimize"
    return [ConfigWarning(code="NO_DIRECTION", message=message, field=f"tuner.classArgs.{_NAME}", file=file)]
