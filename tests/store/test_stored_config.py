"""The config fields that the store reads, in our configs and in NNI's."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.store.stored_config import platform

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"trainingService": {"platform": "local"}}, "local"),
        ({"trainingService": [{"platform": "local"}, {"platform": "remote"}]}, "local,remote"),
        ({"trainingServicePlatform": "local"}, "local"),
        ({}, ""),
    ],
)
def test_the_platform_in_either_dialect(config: dict[str, Any], expected: str) -> None:
    assert platform(config) == expected
