"""How ends are told to people."""

from __future__ import annotations

import pytest

from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import reason_in_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        (None, "", ""),
        ("", "no final result", "no final result"),
        ("USER_CODE", "exit code 1", "its command failed, exit code 1 (USER_CODE)"),
        ("USER_CODE", "exit code 127", "its command failed, exit code 127: a command was not found (USER_CODE)"),
        ("TIMEOUT", "", "it reached maxTrialDuration (TIMEOUT)"),
        ("NEW_WORD", "x", "NEW_WORD, x (NEW_WORD)"),
    ],
)
def test_reason_as_text(reason: str | None, message: str, words: str) -> None:
    assert reason_in_words(reason, message) == words


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason])
def test_every_reason_has_words(reason: Reason) -> None:
    assert not reason_in_words(reason, "").startswith(reason)
