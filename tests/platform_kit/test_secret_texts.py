"""Secrets are kept out of sentences in every spelling, and whole."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.platform_kit.secret_texts import MOST_WORDS, SecretTexts

pytestmark = pytest.mark.unit
SECRET = "p&ss wörd/+=\"'<x>"


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        urlencode({"key": SECRET}),
        quote(SECRET, safe="").lower(),
        json.dumps({"key": SECRET}),
        json.dumps(SECRET, ensure_ascii=False),
        "p&amp;ss wörd/+=&quot;&#x27;&lt;x&gt;",
        base64.b64encode(SECRET.encode()).decode(),
        quote(quote(SECRET, safe=""), safe=""),
    ],
)
def test_every_spelling_of_a_secret_is_redacted(spelled: str) -> None:
    shown = SecretTexts(SECRET).redacted(f"cannot log in with {spelled}, sorry")
    assert "***" in shown and "ss" not in shown and "cannot log in with" in shown and shown.endswith(", sorry")


def test_text_is_redacted_before_it_is_cut() -> None:
    token = "secret-token-of-forty-characters-or-more"
    shown = SecretTexts(token).shown("x" * (MOST_WORDS - 10) + token)
    assert "secret" not in shown and len(shown) <= MOST_WORDS


@pytest.mark.parametrize("text", ["https://ann:hunter2@pai.example/rest", "proxy http://:hunter2@proxy:3128 refused"])
def test_user_and_password_of_an_address(text: str) -> None:
    shown = SecretTexts().redacted(text)
    assert "hunter2" not in shown and "***@" in shown


def test_longer_secret_goes_before_its_own_part() -> None:
    assert SecretTexts("abc", "abcdef").redacted("it was abcdef") == "it was ***"


def test_no_secret_in_repr() -> None:
    assert SECRET not in repr(SecretTexts(SECRET))


@given(st.text(min_size=3), st.text(), st.text())
def test_no_secret_is_left_in_a_text(secret: str, before: str, after: str) -> None:
    assert secret not in SecretTexts(secret).redacted(before + secret + after).replace("***", "\0")
