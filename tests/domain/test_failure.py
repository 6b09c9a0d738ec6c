"""What counts as the same failure, and the last words that say why."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import last_line
from nni_manager.domain.trial import cause_line, failure_key, reason_in_words
from nni_manager.domain.trial_status import TrialStatus

pytestmark = pytest.mark.unit


def key(status: str = "FAILED", reason: str = "USER_CODE", id: str = "abcde", **report: Any) -> str:
    found = Observation(state=JobState.FAILED, **{"exit_code": 1, **report})
    return failure_key(TrialStatus(status), Reason(reason), found, id)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: 0.25 is not a rate", "ValueError: -1.5e-3 is not a rate"),
        ("Error: [Errno 2] No such file: '/data/a b.csv'", "Error: [Errno 2] No such file: '/x b.csv'"),
        ("no ./out/1/model.pt", "no results/best.pt"),
        ("RuntimeError: at 0x7f3a00 of 10.0.0.1:80", "RuntimeError: at 0x7f3b99 of 192.168.1.20:4000"),
        ("cannot reach http://10.0.0.1:80/a", "cannot reach http://example.org/b/c"),
        ("trial abcde: no", "trial 7: no"),
        ("pod nni-trial-abcde-bqxwz: no", "pod nni-trial-abcde-0-x7kqz: no"),
    ],
)
def test_numbers_paths_and_addresses_are_alike(one: str, other: str) -> None:
    assert key(stderr_tail=f"Traceback\n{one}\n") == key(stderr_tail=f"another line\n{other}\n\n")


@pytest.mark.parametrize(
    "other",
    [
        {"stderr_tail": "KeyError: 'rate'"},
        {"exit_code": 2},
        {"reason": "OUT_OF_MEMORY"},
        {"stderr_tail": ""},
        {"exit_code": None, "signal": 9},
    ],
)
def test_another_error_code_or_cause_is_another_failure(other: dict[str, Any]) -> None:
    report = {"stderr_tail": "ValueError: 1 is not a rate"}
    assert key(**report) != key(**{**report, **other})


def test_the_key_can_be_read() -> None:
    assert (
        key(stderr_tail="a\nValueError: 0.1 is not a rate\n") == "USER_CODE, exit code 1: ValueError: # is not a rate"
    )
    refused = {"reason": "SUBMIT_REJECTED", "exit_code": None, "message": "/code/abcde is gone"}
    assert key(**refused) == "SUBMIT_REJECTED: … is gone"
    assert key("SYS_CANCELED", "LOST", exit_code=None) == "LOST"


def test_platforms_sentence_on_memory_is_not_in_the_key() -> None:
    """It may name the pod."""
    report = {"reason": "OUT_OF_MEMORY", "exit_code": None, "signal": 9}
    assert key(**report, message="pod train-x: OOMKilled") == key(**report, message="pod train-y: OOMKilled")


def test_deletion_in_the_cluster_explains_the_end() -> None:
    assert reason_in_words("CANCELLED_THERE", "Job x was deleted in the cluster") == (
        "it was ended at the training service: Job x was deleted in the cluster (CANCELLED_THERE)"
    )


@pytest.mark.parametrize("status", ["SUCCEEDED", "USER_CANCELED", "EARLY_STOPPED"])
def test_successful_trial_has_no_failure_key(status: str) -> None:
    assert key(status) == ""


NOISE = "x.py:7: UserWarning: 12 leaked objects\n  warnings.warn('leaked')\n"


def traceback_of(exception: str) -> str:
    return f'Traceback (most recent call last):\n  File "go.py", line 3, in f\n    g()\n{exception}\n'


def test_exceptions_before_the_same_warning_are_other_failures() -> None:
    keys = [key(stderr_tail=traceback_of(one) + NOISE) for one in ("KeyError: 'lr'", "ValueError: bad shape")]
    assert keys == ["USER_CODE, exit code 1: KeyError: 'lr'", "USER_CODE, exit code 1: ValueError: bad shape"]


def test_long_messages_that_differ_in_numbers_are_alike() -> None:
    long, other = ("no memory for " + f"block {number} of {number * 997} and " * 20 for number in (7, 123456))
    assert key(stderr_tail=traceback_of(f"MemoryError: {long}")) == key(
        stderr_tail=traceback_of(f"MemoryError: {other}")
    )


def test_the_cause_is_short() -> None:
    assert cause_line(traceback_of("ValueError: no") + NOISE) == "ValueError: no"
    assert cause_line("x" * 300) == "x" * 199 + "…"


def test_the_last_line_is_printable_and_short() -> None:
    assert last_line("first\n\x1b[31mlast\n\n  \n") == "[31mlast"
    assert last_line(" \n") == ""
    assert last_line("x" * 300) == "x" * 199 + "…"


@pytest.mark.parametrize(
    ("code", "last_words", "words"),
    [
        (1, "ValueError: no", "exit code 1: ValueError: no"),
        (1, "", "exit code 1"),
        (127, "/bin/sh: 1: train: not found", "exit code 127: the command train was not found"),
        (127, "bash: line 1: train: command not found", "exit code 127: the command train was not found"),
        (127, "zsh:1: command not found: train", "exit code 127: the command train was not found"),
        (
            127,
            "sh: 1: ./go.sh: not found",
            "exit code 127: the command ./go.sh was not found; if that file exists, the interpreter in its first line"
            " does not, for example because the line ends with CRLF (convert it with dos2unix)",
        ),
        (127, "", "exit code 127: a command was not found"),
        (127, "exec failed", "exit code 127: a command was not found: exec failed"),
    ],
)
def test_reason_has_last_line_and_missing_command(code: int, last_words: str, words: str) -> None:
    told = reason_in_words("USER_CODE", f"exit code {code}", last_words)
    assert told == f"its command failed, {words} (USER_CODE)"
