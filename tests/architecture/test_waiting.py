"""A wait in vain says what was waited for."""

from __future__ import annotations

import pytest

from tests.waiting import until, until_async

pytestmark = pytest.mark.unit


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, "", 3])
    assert until(lambda: next(answers)) == 3


def test_a_wait_in_vain_names_the_line_and_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s in vain: until\(lambda: \[\], 0\); the last answer was \[\]"):
        until(lambda: [], 0)


def test_a_wait_in_vain_names_its_words() -> None:
    with pytest.raises(AssertionError, match="in vain: the file came; the last answer was None"):
        until(lambda: None, 0, what="the file came")


async def test_a_wait_on_the_loop_names_its_line() -> None:
    with pytest.raises(AssertionError, match=r"in vain: await until_async\(lambda: 0, 0\)"):
        await until_async(lambda: 0, 0)
