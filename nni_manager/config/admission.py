"""Admission: whether an experiment can be made of a valid config here, by the platforms' own word and by what their
trials can mount.

`nnictl config check` and `create` ask the same.
"""

from __future__ import annotations

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.platform_kit import registry


def check(spec: ExperimentSpec) -> None:
    """Raises InvalidInput."""
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
