"""Random: the contract, and a sequence that depends on seed and id alone."""

from __future__ import annotations

import pytest

from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, TunerContract

pytestmark = pytest.mark.unit


class TestRandom(TunerContract):
    def make(self) -> Tuner:
        return Random(seed=5)


def new(seed: int | None) -> Random:
    tuner = Random(seed=seed)
    tuner.update_search_space(SPACES["mixed"])
    return tuner


def test_proposal_is_independent_of_earlier_ones() -> None:
    first = new(7)
    assert [first.propose(number) for number in range(10)][9] == new(7).propose(9)


def test_seeds_and_ids_make_a_difference() -> None:
    assert len({str(new(seed).propose(number)) for seed in (0, 1) for number in (0, 1)}) == 4


def test_without_a_seed_every_instance_draws_differently() -> None:
    assert new(None).propose(0) != new(None).propose(0)


def test_the_numbers_stay_the_same_from_release_to_release() -> None:
    tuner = Random(seed=1)
    tuner.update_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
    assert tuner.propose(0) == {"x": pytest.approx(0.9064717269000477)}
