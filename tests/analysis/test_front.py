"""The front of many trials is the Pareto set, and grows with what is new alone."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from nni_manager.analysis import selection
from nni_manager.analysis.answers import pareto as module
from nni_manager.analysis.answers.pareto import Front
from nni_manager.analysis.columns.column import Floats, Integers, Mask
from nni_manager.domain import objectives
from nni_manager.domain.objectives import Worth, parse_constraint

pytestmark = pytest.mark.unit


def some(seed: int, count: int, objectives: int) -> tuple[Floats, Floats, Mask]:
    """Losses with many ties, violations, and which of the trials are usable."""
    random_ = np.random.default_rng(seed)
    losses = random_.integers(0, 6, (count, objectives)).astype(float)
    return losses, random_.choice([0.0, 0.0, 1.0, np.inf], count), random_.random(count) < 0.8


def expected(losses: Floats, violation: Floats, usable: Mask) -> set[int]:
    results = [
        (position, Worth(losses=tuple(losses[position].tolist()), violations=(float(violation[position]),)))
        for position in np.flatnonzero(usable).tolist()
    ]
    return {position for position, _ in objectives.extended_set([], results)}


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_front_grows_to_the_pareto_set(seed: int, objectives: int) -> None:
    losses, violation, usable = some(seed, 200, objectives)
    front, known = Front(), np.zeros(200, np.bool_)
    for count in (1, 1, 20, 120, 200):  # trials end in another order than they were made
        known[:count] = usable[:count]
        known[150:] &= count > 120
        found = front.follow(losses[:count].copy(), violation[:count].copy(), known[:count].copy())
        assert set(found.tolist()) == expected(losses[:count], violation[:count], known[:count])


def test_change_of_a_known_result_is_seen() -> None:
    losses, violation = np.array([[1.0, 1, 1], [2, 2, 2]]), np.zeros(2)
    front, usable = Front(), np.ones(2, np.bool_)
    assert front.follow(losses, violation, usable).tolist() == [0]
    assert front.follow(np.add(losses, [[5.0], [0]]), violation, usable).tolist() == [1]
    assert front.follow(losses, violation, np.array([False, True])).tolist() == [1]


def test_only_new_trials_are_held_against_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = some(1, 500, 3)[0]
    front, reduced = Front(), module._reduced
    sizes: list[int] = []

    def noted(losses: Floats, new: Integers) -> Integers:
        sizes.append(len(new))
        return reduced(losses, new)

    monkeypatch.setattr(module, "_reduced", noted)
    front.follow(losses[:499], np.zeros(499), np.ones(499, np.bool_))
    front.follow(losses, np.zeros(500), np.ones(500, np.bool_))
    assert sizes == [499, 1]


async def test_front_of_ten_thousand_trials_is_found_in_time() -> None:
    parts = np.random.default_rng(0).dirichlet([1, 1, 1], 10_000)
    async with asyncio.timeout(10):
        found = await asyncio.to_thread(Front().follow, parts, np.zeros(10_000), np.ones(10_000, np.bool_))
    assert len(found) > 9000


@pytest.mark.parametrize("text", ["<= 8", "< 8", ">= 8", "> 8"])
def test_violations_are_those_of_the_constraint(text: str) -> None:
    limit = parse_constraint(text)
    values = [7.0, 8.0, 9.5, float("inf"), float("-inf"), float("nan"), random.Random(0).random()]
    assert selection._beyond(limit, np.array(values)).tolist() == [limit.violation(value) for value in values]
