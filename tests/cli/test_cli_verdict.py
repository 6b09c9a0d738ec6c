"""When waiting for an experiment ends, and the sentence then."""

from __future__ import annotations

import pytest
from fake_manager import state

from nni_manager.domain.experiment import PASSING_HOLDS, ExperimentStatus, HoldCode
from nni_manager.programs.waiting import judge, passing_hold

pytestmark = pytest.mark.unit

BEST = {"trialId": "ab1cd", "value": 0.5, "parameters": {"x": 1}}


def hold(code: str) -> dict:
    return {"code": code, "sentence": "the tuner raised KeyError", "details": "Traceback …\nKeyError: 'x'\n"}


@pytest.mark.parametrize("status", ["INITIALIZED", "RUNNING", "NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL"])
def test_waiting_goes_on(status: str) -> None:
    assert judge(state(status=status)) is None


def test_done_shows_the_best() -> None:
    verdict = judge(state(status="DONE", counts={"SUCCEEDED": 1}, best=BEST))
    assert verdict is not None and verdict.is_done and verdict.is_good
    assert verdict.text.startswith("Experiment k3v9x0qa is done. ")
    reason = "maxTrialNumber (1) is reached"
    verdict = judge(state(status="DONE", counts={"SUCCEEDED": 1}, best=BEST, noMoreTrials=reason))
    assert verdict is not None
    expected = f'Experiment k3v9x0qa is done, as {reason}. Best result 0.5, trial ab1cd:\n{{\n  "x": 1\n}}'
    assert verdict.text == expected


@pytest.mark.parametrize(
    ("counts", "is_good", "words"),
    [
        (
            {"SUCCEEDED": 2},
            False,
            "no successful trial has a finite number as final result; `nnictl trial ls",
        ),
        ({"FAILED": 2}, False, "no trial succeeded; 2 of 2 trials failed."),
        ({}, False, "no trial succeeded"),
    ],
)
def test_done_without_a_best(counts: dict, is_good: bool, words: str) -> None:
    verdict = judge(state(status="DONE", counts=counts))
    assert verdict is not None and verdict.is_done and verdict.is_good == is_good
    assert words in verdict.text


COMMON = {"trials": 55, "trialId": "zz9zz", "sentence": "its command failed, exit code 1: KeyError: 'x' (USER_CODE)"}


def test_more_than_half_failed_is_a_bad_end() -> None:
    failed = {"FAILED": 56, "SYS_CANCELED": 1, "SUCCEEDED": 3}
    verdict = judge(state(status="DONE", counts=failed, best=BEST, commonFailure=COMMON))
    assert verdict is not None and verdict.is_done and not verdict.is_good
    assert verdict.text.splitlines()[-1] == (
        "57 of 60 trials failed, 55 of them in the same way: its command failed, exit code 1: KeyError: 'x'"
        " (USER_CODE); `nnictl trial show k3v9x0qa -T zz9zz` shows one of them."
    )


def test_most_frequent_failure_of_one_trial_is_an_example() -> None:
    failed = {"FAILED": 2, "SUCCEEDED": 5}
    verdict = judge(state(status="DONE", counts=failed, best=BEST, commonFailure={**COMMON, "trials": 1}))
    assert verdict is not None
    assert "\n2 of 7 trials failed, for example: its command failed, exit code 1: KeyError" in verdict.text


@pytest.mark.parametrize(
    ("counts", "is_good"),
    [
        ({"FAILED": 1, "SUCCEEDED": 1}, True),
        ({"FAILED": 1, "SYS_CANCELED": 1, "SUCCEEDED": 1}, False),
        ({"FAILED": 2, "SUCCEEDED": 1, "EARLY_STOPPED": 1}, True),
        ({"FAILED": 2, "SUCCEEDED": 1, "RUNNING": 5}, False),
    ],
)
def test_half_of_those_that_ended_may_fail(counts: dict, is_good: bool) -> None:
    verdict = judge(state(status="DONE", counts=counts, best=BEST, commonFailure={**COMMON, "trials": 1}))
    assert verdict is not None and verdict.is_good == is_good


def test_single_failure_sentence() -> None:
    verdict = judge(state(status="DONE", counts={"FAILED": 1}, commonFailure={**COMMON, "trials": 1}))
    assert verdict is not None and verdict.text == (
        "Experiment k3v9x0qa is done, but no trial succeeded; 1 of 1 trials failed: its command failed, exit code 1:"
        " KeyError: 'x' (USER_CODE); `nnictl trial show k3v9x0qa -T zz9zz` shows it."
    )


@pytest.mark.parametrize("code", [code for code in HoldCode if code not in PASSING_HOLDS])
def test_a_hold_that_needs_a_person_ends_the_waiting(code: HoldCode) -> None:
    verdict = judge(state(hold=hold(code), errors=["the tuner raised KeyError"]))
    assert verdict is not None and not verdict.is_done and not verdict.is_good
    assert verdict.text == (
        "Experiment k3v9x0qa is on hold: the tuner raised KeyError\nTraceback …\nKeyError: 'x'\n"
        "Continue it with `nnictl resume k3v9x0qa`, or end it with `nnictl stop k3v9x0qa`."
    )


@pytest.mark.parametrize("code", sorted(PASSING_HOLDS))
def test_temporary_hold_is_waited_for(code: HoldCode) -> None:
    held = state(hold=hold(code))
    assert judge(held) is None
    assert passing_hold(held) == "the tuner raised KeyError"
    assert passing_hold(state()) == ""


def test_error_lists_every_sentence() -> None:
    verdict = judge(state(status="ERROR", errors=["the store is corrupt", "the tuner died"]))
    assert verdict is not None and not verdict.is_good and not verdict.is_done
    assert "stopped on an error: the store is corrupt; the tuner died\n" in verdict.text


@pytest.mark.parametrize("status", ["STOPPING", "STOPPED"])
def test_experiment_stopped_meanwhile(status: str) -> None:
    verdict = judge(state(status=status))
    assert verdict is not None and not verdict.is_good and not verdict.is_done
    assert "`nnictl resume k3v9x0qa`" in verdict.text


@pytest.mark.parametrize("status", ExperimentStatus)
def test_every_status_is_judged(status: ExperimentStatus) -> None:
    waits = status in (ExperimentStatus.INITIALIZED, ExperimentStatus.VIEWED) or status.is_active
    assert (judge(state(status=status)) is None) == waits
