"""The record a trial reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.domain.space.parameters import Parameters, ParameterSource

pytestmark = pytest.mark.unit

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_the_record_has_these_four_keys_in_this_order() -> None:
    parameters = Parameters(parameter_id=3, source=ParameterSource.ALGORITHM, values={"x": 0.1})
    assert parameters.record() == (
        '{"parameter_id":3,"parameter_source":"algorithm","parameters":{"x":0.1},"parameter_index":0}'
    )


@given(st.none() | st.integers(0), st.sampled_from(ParameterSource), VALUES)
def test_a_record_comes_back(number: int | None, source: ParameterSource, values: object) -> None:
    parameters = Parameters(parameter_id=number, source=source, values=values)
    assert Parameters.from_record(parameters.record()) == parameters


def test_records_of_older_versions_may_lack_the_source() -> None:
    found = Parameters.from_record('{"parameters": {"x": 1}}')
    assert found == Parameters(parameter_id=None, source=ParameterSource.ALGORITHM, values={"x": 1})


@pytest.mark.parametrize("number", ["7", 1.5, None])
def test_missing_number_is_left_out_of_the_record(number: object) -> None:
    assert Parameters.from_record(json.dumps({"parameter_id": number, "parameters": 1})).parameter_id is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"parameters": 1, "parameter_source": "nowhere"}'])
def test_invalid_record_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, AttributeError)):
        Parameters.from_record(text)
