"""Final results: which can be compared, and the step that follows from those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.results.final_result import ReportedResult, Usability
from nni_manager.domain.results.result_advice import SEARCHING_OBJECTIVES, advice
from nni_manager.tuners.registry import CATALOGUE

pytestmark = pytest.mark.unit

TPE = {"tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}}
BOTH = {"tuner": {"name": "TPE"}, "objectives": {"acc": "maximize", "ms": "minimize"}}
OWN = {"tuner": {"className": "mine.Mine"}}


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        ("0.5", Usability.USABLE),
        ("3", Usability.USABLE),
        ('{"default": 1, "note": "a"}', Usability.USABLE),
        ("NaN", Usability.NOT_FINITE),
        ('{"default": -Infinity}', Usability.NOT_FINITE),
        (None, Usability.UNUSABLE),
        ("true", Usability.UNUSABLE),
        ("null", Usability.UNUSABLE),
        ("[1]", Usability.UNUSABLE),
        ('"0.5"', Usability.UNUSABLE),
        ('{"acc": 0.5}', Usability.UNUSABLE),
        ('{"default": "high"}', Usability.UNUSABLE),
    ],
)
def test_result_is_usable_with_a_number(final: str | None, expected: Usability) -> None:
    assert ReportedResult(final=final).usability(()) is expected


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        ('{"acc": 0.5, "ms": 3}', Usability.USABLE),
        ('{"acc": 0.5, "ms": NaN}', Usability.NOT_FINITE),
        ('{"acc": 0.5}', Usability.UNUSABLE),
        ("0.5", Usability.UNUSABLE),
    ],
)
def test_result_is_usable_with_each_objective(final: str, expected: Usability) -> None:
    assert ReportedResult(final=final).usability(("acc", "ms")) is expected
    assert ReportedResult(final="0.5").usability(("default",)) is Usability.USABLE


@pytest.mark.parametrize(
    ("final", "config", "expected"),
    [
        (None, TPE, "no final result was reported: call nni.report_final_result with a number"),
        ('"0.93"', TPE, 'results are "0.93": report a number, not text'),
        ("[0.93]", TPE, "results are [0.93]: report a number"),
        (
            '{"acc": 0.9}',
            TPE,
            "results are {acc: 0.9}: report the key `default`, or set objectives: {acc: maximize}",
        ),
        (
            '{"note": "a", "loss": 1}',
            OWN,
            'results are {note: "a", loss: 1}: report the key `default`, or set tuner: {name: TPE} and objectives:'
            " {loss: maximize}",
        ),
        ('{"note": "a"}', TPE, 'results are {note: "a"}: report a number under the key `default`'),
        ('{"default": "a"}', TPE, 'results are {default: "a"}: report a number under the key `default`'),
        (
            '{"acc": 0.9}',
            BOTH,
            "results are {acc: 0.9}: the objective ms has no number; report a number under each key of objectives, or"
            " change objectives",
        ),
        ("NaN", TPE, "results are NaN: NaN and infinity are never the best; report finite numbers"),
    ],
)
def test_advice_names_cause_and_fix(final: str | None, config: dict[str, Any], expected: str) -> None:
    assert advice(ReportedResult(final=final), config) == expected


def test_advice_has_the_direction_of_the_class_and_stays_short() -> None:
    assert "{acc: minimize}" in advice(ReportedResult(final='{"acc": 1}'), OWN, "minimize")
    assert "only 3 intermediate: " in advice(ReportedResult(final=None, intermediates=3), TPE)
    assert len(advice(ReportedResult(final=f'"{"x" * 9999}"'), TPE)) < 250


def test_advice_is_always_printable() -> None:
    text = advice(ReportedResult(final='{"a\\u001b[2J": 1, "b\\u009b": 2}'), TPE)
    assert text.isprintable() and "report the key `default`" in text


def test_tuners_for_objectives_are_those_of_the_catalogue() -> None:
    assert {one.name for one in CATALOGUE.built_in if one.with_objectives} | {""} == SEARCHING_OBJECTIVES
