"""The platform contract as tests to inherit, for our adapters and those of other packages.

Write a `World` that simulates the remote side of the platform, and a class of three lines::

    class TestHive(PlatformContract):
        def make_world(self, directory: Path) -> World:
            return HiveWorld(directory)

Use a `LedWorld` for jobs that are controlled over HTTP; see `tests/third_party/nni-hive/tests`. `listener` and
`middlebox` are also useful in other tests: a trial listener that stores runners' posts, and boxes between the two that
answer in HTTP themselves. This is the only package that imports pytest; nothing else in nni_manager imports it.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ("platform_contract", "service_contract", "observing"))
)

# imported here, as pytest rewrites the asserts of modules imported after the call above
from nni_manager.platform_kit.testing.lagging_storage import Lag, LaggingStorage, lagging_storage  # noqa: E402
from nni_manager.platform_kit.testing.led_world import LedWorld  # noqa: E402
from nni_manager.platform_kit.testing.platform_contract import PlatformContract  # noqa: E402
from nni_manager.platform_kit.testing.recorder import DeliveredLines, Recorder  # noqa: E402
from nni_manager.platform_kit.testing.world import (  # noqa: E402
    Feature,
    World,
    unreachable_keeper,
)

__all__ = [
    "DeliveredLines",
    "Feature",
    "Lag",
    "LaggingStorage",
    "LedWorld",
    "PlatformContract",
    "Recorder",
    "World",
    "lagging_storage",
    "unreachable_keeper",
]
