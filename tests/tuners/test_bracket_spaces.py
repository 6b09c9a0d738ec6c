"""Hyperband and BOHB on made-up search spaces: what they propose lies in the space, with a budget.

500 proposals of each; `NNI_PROPOSALS=10000` asks for as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from nni_manager.tuners.bohb import BOHB
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.hyperband import Hyperband
from nni_manager.tuners.testing import SPACES, dimension, odd_score, result, through_json
from tests.tuners.test_hyperband_tuner import in_space_with_budget

pytestmark = [pytest.mark.unit, pytest.mark.timeout(180)]

#: Proposals for one search space: the first ones without a model, the others with one.
_FOR_ONE = 25
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
PLAIN = st.sampled_from([one for space in SPACES.values() for one in space.values()])
TUNERS: dict[str, Callable[[int], Tuner]] = {
    "Hyperband": lambda seed: Hyperband(R=9, seed=seed),
    "BOHB": lambda seed: BOHB(max_budget=3, seed=seed, random_fraction=0.1),
}


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    groups = st.lists(st.dictionaries(NAMES, inner, max_size=2), min_size=1, max_size=3)
    return groups.map(lambda found: dimension("choice", *({"_name": str(n), **one} for n, one in enumerate(found))))


@pytest.mark.parametrize("name", TUNERS)
def test_proposals_lie_in_made_up_spaces(name: str) -> None:
    count = -(-int(os.environ.get("NNI_PROPOSALS", "500")) // _FOR_ONE)

    @seed(1)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(space=st.dictionaries(NAMES, st.recursive(PLAIN, branches, max_leaves=4), max_size=4), number=st.integers(0))
    def search(space: dict[str, Any], number: int) -> None:
        tuner = TUNERS[name](number)
        tuner.update_search_space(space)
        for parameter_id in range(_FOR_ONE):
            parameters = through_json(tuner.propose(parameter_id))
            assert in_space_with_budget(space, parameters), (space, parameters)
            if parameter_id % 5:  # some run on
                tuner.learn(result(parameter_id, parameters, odd_score(parameter_id % 12, parameters)))

    search()
