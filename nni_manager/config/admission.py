"""Whether an experiment can be made of a valid config here: the platform's own word, and what no platform can do yet.

`nnictl config check` and `create` ask the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import registry

if TYPE_CHECKING:
    from nni_manager.platform_kit.contract import Platform


def check(spec: ExperimentSpec) -> type[Platform]:
    """The adapter. Raises InvalidInput."""
    adapters = [registry.adapter_class(registry.find(platform.name)) for platform in spec.platforms]
    if len(adapters) > 1:
        raise InvalidInput("trainingService: several platforms at once are not in this version yet; leave one")
    adapter: type[Platform] = adapters[0]
    adapter.check(spec)
    if spec.shared_storage is not None:
        raise InvalidInput("sharedStorage: is not in this version yet; remove this section")
    return adapter
