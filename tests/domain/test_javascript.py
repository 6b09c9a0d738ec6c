"""JSON as NNI's manager writes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.store.nni.nni_format import as_javascript

pytestmark = pytest.mark.unit

#: What Node.js answers.
NUMBERS = {
    1.0: "1",
    -0.0: "0",
    0.1: "0.1",
    1e-5: "0.00001",
    1e-6: "0.000001",
    1e-7: "1e-7",
    1.5e-7: "1.5e-7",
    123456789.5: "123456789.5",
    1e16: "10000000000000000",
    1.5e20: "150000000000000000000",
    1e21: "1e+21",
    1.25e22: "1.25e+22",
    5e-324: "5e-324",
    1.7976931348623157e308: "1.7976931348623157e+308",
    -2.5: "-2.5",
    100.0: "100",
    0.000001234: "0.000001234",
    7: "7",
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_numbers_are_written_as_node_does() -> None:
    assert {number: as_javascript(number) for number in NUMBERS} == NUMBERS


def test_json_is_compact_and_strings_are_unchanged() -> None:
    value = [{"größe": 1.0, 'say "1.0"\\': ["2.50", "\\", 1.0, "\n", "\u2028"]}]
    assert as_javascript(value) == '[{"größe":1,"say \\"1.0\\"\\\\":["2.50","\\\\",1,"\\n","\u2028"]}]'


@given(VALUES)
def test_json_survives_the_conversion(value: object) -> None:
    """But which of 1 and 1.0 it was."""
    assert json.loads(as_javascript(value), parse_int=float) == json.loads(json.dumps(value), parse_int=float)


def test_invalid_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_javascript({"x": float("nan")})
