"""What can be stored as text and read by everybody."""

from __future__ import annotations

import math

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.text import require_finite, require_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"x": {"\ud83d": 1}}])
def test_lone_surrogate_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="name: holds"):
        require_text("name", value)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"x": {"y": -math.inf}}])
def test_json_has_finite_numbers(value: object) -> None:
    with pytest.raises(InvalidInput, match="value: NaN and infinity are no JSON"):
        require_finite("value", value)


@pytest.mark.parametrize("value", [None, 1e300, "NaN", "\U0001f600", {"x": [1, True, "ü"]}])
def test_valid_json_values_are_accepted(value: object) -> None:
    require_text("value", value)
    require_finite("value", value)
