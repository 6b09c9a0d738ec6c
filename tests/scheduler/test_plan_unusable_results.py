"""`maxUnusableResults`: the first trials that succeed without a usable result put the experiment on hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.domain.results.final_result import ReportedResult
from nni_manager.scheduler.planning.decisions import CountUnusable, PutOnHold, SetStatus
from tests.scheduler.pictures import Plan, ended, experiment, proposals, spec

pytestmark = pytest.mark.unit

CONFIG = {"tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}}
TPE = spec(tuner=AlgorithmSpec(name="TPE"), canonical=CONFIG)


def planned(before: int | None, *finals: str | None, config: Any = TPE, made: int = 50) -> Plan:
    """The plan after `before` unusable results, when trials with these final results have ended."""
    trials = [ended(f"t{number:04}", has_final=final is not None) for number, final in enumerate(finals)]
    reported = {trial.id: ReportedResult(final=final) for trial, final in zip(trials, finals, strict=True)}
    row = experiment(ended_trials=made, next_sequence_id=made, unusable_results=before)
    return Plan(*trials, row=row, config=config, reported=reported, proposals=proposals(1))


@pytest.mark.parametrize("final", [None, '"0.9"', '{"acc": 0.9}', "[1]", "null"])
def test_first_five_unusable_results_hold_the_experiment(final: str | None) -> None:
    found = planned(4, final)
    [record] = found.records(PutOnHold)
    assert record.hold.code is HoldCode.NO_USABLE_RESULT
    assert found.records(CountUnusable) == [CountUnusable(count=5)]
    assert found.submitted == [], "it holds from this very turn"


def test_hold_names_cause_and_fix() -> None:
    [record] = planned(4, '{"acc": 0.9}').records(PutOnHold)
    assert record.hold.sentence == (
        "the first 5 trials that succeeded have no usable result (maxUnusableResults): results are {acc: 0.9}: report"
        " the key `default`, or set objectives: {acc: maximize}. `nnictl resume exp1` continues with changed trial"
        " code; a changed experiment file needs a new experiment"
    )
    own = replace(TPE, tuner=AlgorithmSpec(class_name="mine.Mine"))
    [record] = planned(4, '{"acc": 0.9}', config=own).records(PutOnHold)
    assert "if your tuner reads such results, set maxUnusableResults: 0" in record.hold.sentence


@pytest.mark.parametrize(
    ("before", "finals", "count"),
    [
        (0, [None], [1]),
        (3, [None], [4]),
        (4, ["0.5"], [None]),
        (4, ["NaN"], [None]),
        (4, ['{"default": Infinity}'], [None]),
        (3, [None, "0.5", None, None], [None]),
        (None, [None, None], []),
    ],
)
def test_count_ends_at_the_first_number(before: int | None, finals: list[str | None], count: list[int | None]) -> None:
    found = planned(before, *finals)
    assert found.records(PutOnHold) == []
    assert [record.count for record in found.records(CountUnusable)] == count


@pytest.mark.parametrize(("is_held", "holds"), [(True, 0), (False, 1)], ids=["held", "limit raised after its end"])
def test_hold_is_made_up_for_and_not_repeated(is_held: bool, holds: int) -> None:
    hold = Hold(code=HoldCode.NO_USABLE_RESULT, sentence="no result is usable")
    trial = ended("aaaaa", has_final=False)
    row = experiment(ended_trials=50, next_sequence_id=50, unusable_results=5, hold=hold if is_held else None)
    found = Plan(trial, row=row, config=TPE, reported={"aaaaa": ReportedResult(final=None)})
    assert len(found.records(PutOnHold)) == holds
    assert found.records(CountUnusable) == [CountUnusable(count=6)]


def test_failed_trials_do_not_count() -> None:
    trial = ended("aaaaa", "FAILED", exit_code=1)
    row = experiment(ended_trials=50, next_sequence_id=50, unusable_results=4)
    found = Plan(trial, row=row, config=TPE, reported={"aaaaa": ReportedResult(final=None)})
    assert found.records(CountUnusable) == [] and found.records(PutOnHold) == []


@pytest.mark.parametrize(
    "config",
    [
        replace(TPE, max_unusable_results=0),
        replace(TPE, tuner=AlgorithmSpec(name="Random")),
        replace(TPE, tuner=AlgorithmSpec(name="GridSearch")),
        replace(TPE, tuner=AlgorithmSpec(class_name="nni.algorithms.hpo.random_tuner.RandomTuner")),
    ],
)
def test_results_are_not_counted_if_irrelevant(config: Any) -> None:
    found = planned(4, None, config=config)
    assert found.records(CountUnusable) == [] and found.records(PutOnHold) == []


def test_objectives_decide_which_numbers_are_missing() -> None:
    objectives = {"acc": "maximize", "ms": "minimize"}
    tuner = AlgorithmSpec(name="TPE", objectives=objectives)
    config = replace(TPE, tuner=tuner, canonical={**CONFIG, "objectives": objectives})
    assert planned(4, '{"acc": 1, "ms": 2}', config=config).records(CountUnusable) == [CountUnusable(count=None)]
    [record] = planned(4, '{"acc": 1}', config=config).records(PutOnHold)
    assert "the objective ms has no number" in record.hold.sentence


def test_experiment_at_its_limit_is_done_and_not_held() -> None:
    found = planned(4, None, config=replace(TPE, max_trial_number=50))
    assert found.records(PutOnHold) == []
    assert [record.status for record in found.records(SetStatus)] == [ExperimentStatus.DONE]
