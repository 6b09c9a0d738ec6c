"""Every tuner on search spaces of every type and nesting: what it proposes lies in the space.

500 proposals of each tuner, 300 of those with a model; `NNI_PROPOSALS=10000` asks for as many of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.anneal import Anneal
from nni_manager.tuners.cma_es import CmaEs
from nni_manager.tuners.contract import NoMoreProposals, Tuner
from nni_manager.tuners.evolution import Evolution
from nni_manager.tuners.grid import GridSearch
from nni_manager.tuners.models.gp import GPTuner
from nni_manager.tuners.models.smac import SMAC
from nni_manager.tuners.optuna_tpe import TPE
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import odd_score, result, through_json

#: Proposals for one search space: the first ones without a model, the others with one.
_FOR_ONE = 20

TUNERS: dict[str, tuple[Callable[[int], Tuner], int]] = {
    "Random": (lambda seed: Random(seed=seed), 500),
    "GridSearch": (lambda seed: GridSearch(), 500),
    "TPE": (lambda seed: TPE(seed=seed, tpe_args={"n_startup_jobs": 5}), 500),
    "Anneal": (lambda seed: Anneal(seed=seed), 500),
    "Evolution": (lambda seed: Evolution(seed=seed, population_size=5), 500),
    "CmaEs": (lambda seed: CmaEs(seed=seed), 500),
    "GPTuner": (lambda seed: GPTuner(seed=seed, cold_start_num=5, selection_num_warm_up=200), 300),
    "SMAC": (lambda seed: SMAC(seed=seed), 300),
}

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
POSITIVE = st.floats(1e-6, 1e6, allow_subnormal=False)
VALUES = st.one_of(st.text(max_size=3), st.integers(-9, 9), st.booleans(), st.none(), st.floats(-9, 9))


def ordered(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(numbers, min_size=2, max_size=2).map(sorted)


def dimension(kind: str, value: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[Any]:
    return value.map(lambda numbers: {"_type": kind, "_value": numbers})


def with_step(numbers: st.SearchStrategy[list[float]]) -> st.SearchStrategy[list[float]]:
    return st.tuples(numbers, POSITIVE).map(lambda both: [*both[0], both[1]])


WHOLE = st.tuples(st.integers(-1000, 1000), st.integers(1, 2000)).map(lambda both: [both[0], both[0] + both[1]])
NORMAL = st.tuples(st.floats(-100, 100), st.floats(1e-3, 100)).map(list)
LOG_NORMAL = st.tuples(st.floats(-5, 5), st.floats(1e-3, 5)).map(list)
PLAIN = st.one_of(
    dimension("choice", st.lists(VALUES, min_size=1, max_size=5)),
    dimension("randint", WHOLE),
    dimension("uniform", ordered(NUMBERS)),
    dimension("quniform", with_step(ordered(NUMBERS))),
    dimension("loguniform", ordered(POSITIVE)),
    dimension("qloguniform", with_step(ordered(POSITIVE))),
    dimension("normal", NORMAL),
    dimension("qnormal", with_step(NORMAL)),
    dimension("lognormal", LOG_NORMAL),
    dimension("qlognormal", with_step(LOG_NORMAL)),
)
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A nested choice: each branch has dimensions of its own, or none."""
    groups = st.lists(st.dictionaries(NAMES, inner, max_size=2), min_size=1, max_size=3)
    named = groups.map(lambda found: [{"_name": f"branch {number}", **one} for number, one in enumerate(found)])
    return dimension("choice", named)


SPACES = st.dictionaries(NAMES, st.recursive(PLAIN, branches, max_leaves=4), max_size=4)


@pytest.mark.unit
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", TUNERS)
def test_proposals_lie_in_the_space(name: str) -> None:
    make, proposals = TUNERS[name]
    spaces = -(-int(os.environ.get("NNI_PROPOSALS", proposals)) // _FOR_ONE)

    @seed(1)
    @settings(
        max_examples=spaces,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(space=SPACES, number=st.integers(0, 2**32))
    def search(space: dict[str, Any], number: int) -> None:
        tuner = make(number)
        tuner.update_search_space(space)
        for parameter_id in range(_FOR_ONE):
            try:
                parameters = through_json(tuner.propose(parameter_id))
            except NoMoreProposals:
                return
            assert parse(space).contains(parameters), (space, parameters)
            if parameter_id % 3:  # one third runs on
                tuner.learn(result(parameter_id, parameters, odd_score(parameter_id % 12, parameters)))

    search()
