"""How ends are told to people."""

from __future__ import annotations

import pytest

from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import explanation, reason_in_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        (None, "", ""),
        ("", "no final result", "no final result"),
        ("USER_CODE", "exit code 1", "its command failed, exit code 1 (USER_CODE)"),
        ("USER_CODE", "exit code 127", "its command failed, exit code 127: a command was not found (USER_CODE)"),
        ("TIMEOUT", "", "a time limit of the training service ended it (TIMEOUT)"),
        ("NEW_WORD", "x", "NEW_WORD, x (NEW_WORD)"),
    ],
)
def test_reason_as_text(reason: str | None, message: str, words: str) -> None:
    assert reason_in_words(reason, message) == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("EARLY_STOPPED", "it reached maxTrialDuration, exit code 1 (TIMEOUT)"),
        ("FAILED", "a time limit of the training service ended it, exit code 1 (TIMEOUT)"),
    ],
)
def test_time_limit_as_text_depends_on_the_status(status: str, words: str) -> None:
    trial = {"status": status, "reason": "TIMEOUT", "message": "exit code 1", "lastWords": "", "wait": None}
    assert explanation({**trial, "stopRequest": None, "endedMs": 1}) == words


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason])
def test_every_reason_has_words(reason: Reason) -> None:
    assert not reason_in_words(reason, "").startswith(reason)
