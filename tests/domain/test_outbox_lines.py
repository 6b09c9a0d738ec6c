"""Lines of an outbox: good ones become metrics, broken ones cost themselves and nothing else."""

from __future__ import annotations

import json
import math
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.domain.metrics import Lines, Metric, MetricType, joined_lines, parse_nni, parse_own
from trial_runner import protocol

pytestmark = pytest.mark.unit

GOOD = '{"type": "intermediate", "value": 1}'


def only(lines: Lines) -> Metric:
    assert not lines.broken
    (metric,) = lines.metrics
    return metric


def test_byte_order_mark_before_the_first_line_is_ignored() -> None:
    lines = parse_own(["\ufeff" + GOOD, GOOD])
    assert not lines.broken and [metric.value for metric in lines.metrics] == [1, 1]


@pytest.mark.parametrize(
    ("value", "data", "number"),
    [
        ("1", "1", 1.0),
        ("-0.25", "-0.25", -0.25),
        ("1e400", "Infinity", math.inf),
        ("Infinity", "Infinity", math.inf),
        ("-Infinity", "-Infinity", -math.inf),
        ("true", "true", None),
        ("null", "null", None),
        ('"0.5"', '"0.5"', None),
        ("[1, 2]", "[1, 2]", None),
        ('{"default": 3, "loss": 0.1}', '{"default": 3, "loss": 0.1}', 3.0),
        ('{"default": true}', '{"default": true}', None),
        ('{"default": {"default": 1}}', '{"default": {"default": 1}}', None),
        ('{"loss": 0.1}', '{"loss": 0.1}', None),
        ('"\\ud800"', '"\\ud800"', None),
    ],
)
def test_a_value_is_kept_and_its_number_found(value: str, data: str, number: float | None) -> None:
    metric = only(parse_own([f'{{"type": "final", "value": {value}}}']))
    assert (metric.type, metric.data, metric.value, metric.number) == (MetricType.FINAL, data, number, 0)


def test_nan_has_no_comparable_value() -> None:
    metric = only(parse_own(['{"type": "intermediate", "value": NaN}']))
    assert metric.data == "NaN"
    assert metric.value is not None and math.isnan(metric.value)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_whole_number_beyond_floats_is_infinite(sign: str) -> None:
    metric = only(parse_own([f'{{"type": "final", "value": {sign}{"9" * 400}}}']))
    assert metric.value == float(f"{sign}inf")
    assert metric.data == f"{sign}{'9' * 400}"


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "1],[2",
        "]",
        "[",
        "1",
        "[]",
        "null",
        '"text"',
        '{"type": "final"',
        "{}",
        "final 0.5",
        "}{",
        "\x00",
        '{"type": "final"}',
        '{"value": 1}',
        '{"type": "FINAL", "value": 1}',
        '{"type": ["final"], "value": 1}',
        '{"type": null, "value": 1}',
        '{"type": "final", "value": }',
        GOOD + GOOD,
        f"{GOOD},{GOOD}",
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"type": "final", "value": ' + "9" * 5000 + "}", id="digits"),
        pytest.param("\ud800", id="surrogate"),
    ],
)
def test_broken_line_is_dropped_alone(line: str) -> None:
    lines = parse_own([GOOD, line, GOOD])
    assert lines.count == 3
    assert [metric.number for metric in lines.metrics] == [0, 2]
    (sentence,) = lines.broken.values()
    assert sentence.startswith("line 2 is not a metric (")
    assert len(sentence) < 400


def test_a_missing_field_is_named() -> None:
    assert "(no field 'value')" in parse_own(['{"type": "final"}']).broken["no field 'value'"]


def test_lines_that_are_broken_alike_are_one_sentence() -> None:
    """400,000 empty lines were 240 MB of log."""
    stretches = [parse_own([""] * 250, 250 * number) for number in range(4)] + [parse_own(["{}", ""], 1000)]
    whole = joined_lines(stretches)
    assert whole.count == 1002
    assert [sentence.partition(" is ")[0] for sentence in whole.broken.values()] == ["line 1001", "line 1"]


def test_nested_values_come_back_as_they_were() -> None:
    value = {"default": 0.5, "curve": [[1, [2, {"a": None}]], "ü\n\t\"'"], "deep": {"x": {"y": {}}}}
    metric = only(parse_own([json.dumps({"type": "intermediate", "value": value})]))
    assert json.loads(metric.data) == value
    assert metric.value == 0.5


def test_empty_input_has_no_metrics() -> None:
    assert parse_own([]) == Lines(count=0, metrics=(), broken={})
    assert parse_nni([]) == Lines(count=0, metrics=(), broken={})


def nni_record(type_: str, value: str, **more: object) -> str:
    return json.dumps(
        {"parameter_id": 3, "trial_job_id": "abcde", "type": type_, "sequence": 7, "value": value, **more}
    )


@pytest.mark.parametrize(
    ("type_", "value", "number"),
    [
        ("PERIODICAL", "0.5", 0.5),
        ("FINAL", '{"default": 2, "x": [1]}', 2.0),
        ("FINAL", "Infinity", math.inf),
        ("FINAL", '"good"', None),
        ("PERIODICAL", "false", None),
    ],
)
def test_records_of_the_old_sdk(type_: str, value: str, number: float | None) -> None:
    metric = only(parse_nni([nni_record(type_, value)]))
    assert (metric.type, metric.data, metric.value) == (MetricType(type_), value, number)


def test_request_for_parameters_is_skipped() -> None:
    lines = parse_nni([nni_record("REQUEST_PARAMETER", "{}"), nni_record("FINAL", "1")])
    assert not lines.broken
    assert [metric.number for metric in lines.metrics] == [1]


@pytest.mark.parametrize(
    "line",
    [
        nni_record("FINAL", "not json"),
        nni_record("OTHER", "1"),
        json.dumps({"type": "FINAL", "value": 0.5}),
        '{"type": "FINAL"}',
        "[]",
        "",
        pytest.param(nni_record("FINAL", "[" * 100_000), id="deep"),
        json.dumps({"type": ["FINAL"], "value": "1"}),
    ],
)
def test_broken_record_is_dropped_alone(line: str) -> None:
    lines = parse_nni([line, nni_record("FINAL", "1")])
    assert [metric.number for metric in lines.metrics] == [1]
    assert len(lines.broken) == 1


def test_parsed_metrics_can_be_stored() -> None:
    """Half a surrogate pair is legal JSON and illegal UTF-8."""
    metrics = [
        only(parse_own(['{"type": "final", "value": "\\ud800"}'])),
        only(parse_nni([nni_record("FINAL", '"\ud800"')])),
    ]
    connection = sqlite3.connect(":memory:")
    for metric in metrics:
        (text,) = connection.execute("SELECT ?", (metric.data,)).fetchone()
        assert json.loads(text) == "\ud800"
    connection.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(["intermediate", "final"]), JSON) | st.text('[]{},:"1a \\', max_size=8)))
def test_good_lines_survive_between_broken_ones(entries: list[tuple[str, object] | str]) -> None:
    lines = [e if isinstance(e, str) else json.dumps({"type": e[0], "value": e[1]}) for e in entries]
    parsed = parse_own(lines)
    assert parsed.count == len(lines) and bool(parsed.broken) == (len(parsed.metrics) < len(lines))
    found = {metric.number: json.loads(metric.data) for metric in parsed.metrics}
    assert found == {n: entry[1] for n, entry in enumerate(entries) if not isinstance(entry, str)}


@pytest.mark.parametrize("cut", range(5))
def test_stretches_that_follow_each_other_are_one(cut: int) -> None:
    lines = [GOOD, "broken", '{"type": "final", "value": 2}', ""]
    assert joined_lines([parse_own(lines[:cut]), parse_own(lines[cut:], cut)]) == parse_own(lines)


def test_a_line_that_is_too_long_is_named_with_the_limit() -> None:
    found = parse_own([protocol.TOO_LONG, '{"type": "final", "value": 1}'])
    (sentence,) = found.broken.values()
    assert sentence == "line 1 is longer than the maximum of 4194304 bytes; report less at once"
    assert (found.count, len(found.metrics)) == (2, 1)


@pytest.mark.parametrize("step", ["0", "7", "null", "9007199254740991"])
def test_step_of_an_intermediate_result_is_kept(step: str) -> None:
    metric = only(parse_own([f'{{"type": "intermediate", "value": 1, "step": {step}}}']))
    assert metric.step == json.loads(step)


@pytest.mark.parametrize("step", ["3.0", "1e3"])
def test_step_may_be_written_as_a_float(step: str) -> None:
    metric = only(parse_own([f'{{"type": "intermediate", "value": 1, "step": {step}}}']))
    assert (metric.step, type(metric.step)) == (json.loads(step), int)


_ODD_STEPS = ["-1", "1.5", "true", '"3"', "[1]", "NaN", "Infinity", "9007199254740992", "1e300"]


@pytest.mark.parametrize("step", _ODD_STEPS)
def test_line_with_another_step_is_broken(step: str) -> None:
    lines = parse_own([f'{{"type": "intermediate", "value": 1, "step": {step}}}', GOOD])
    assert len(lines.metrics) == 1
    (sentence,) = lines.broken.values()
    assert sentence.startswith("line 1 is not a metric (step must be a whole number from 0 to 2**53 - 1): ")


@pytest.mark.parametrize("step", ["3", *_ODD_STEPS])
def test_final_result_counts_with_any_step(step: str) -> None:
    metric = only(parse_own([f'{{"type": "final", "value": 1, "step": {step}}}']))
    assert (metric.value, metric.step) == (1, None)
