"""Admission: whether an experiment can be made of a valid config here, by the platform's own word and by what no
platform can do yet.

`nnictl config check` and `create` ask the same.
"""

from __future__ import annotations

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import registry


def check(spec: ExperimentSpec) -> None:
    """Raises InvalidInput."""
    for service in spec.platforms:
        registry.adapter_of(service).check(spec, service)
    if spec.shared_storage is not None:
        raise InvalidInput(
            "sharedStorage: is not in this version yet, nothing would be mounted; remove this section, mount the"
            " storage yourself where trials run, and use its folder there in trialCommand"
        )
