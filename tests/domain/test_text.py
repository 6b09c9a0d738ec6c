"""Texts from outside: which of them can be seen."""

from __future__ import annotations

import pytest

from nni_manager.domain.text import is_visible

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["", " ", "\0", "\n\t", "\u200b\u202e", "\u00a0"])
def test_what_shows_as_nothing_is_not_visible(text: str) -> None:
    assert not is_visible(text) and is_visible(f"{text}a{text}")
