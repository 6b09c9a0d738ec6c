"""Tests for every tuner, to inherit: write a class with a `make` and let pytest collect it.

For tuners that propose parameters of NNI's search spaces; a tuner for fewer types overrides `spaces`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import count

from nni_manager.domain.space.search_space import parse
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Pending, Result, Tuner

Space = Mapping[str, object]


def dimension(kind: str, *values: object) -> Space:
    """One entry of a search space."""
    return {"_type": kind, "_value": list(values)}


NESTED = dimension(
    "choice",
    {"_name": "empty"},
    {"_name": "sgd", "lr": dimension("loguniform", 1e-4, 1), "steps": dimension("randint", 1, 5)},
    {"_name": "deep", "inner": dimension("choice", {"_name": "a", "x": dimension("uniform", 0, 1)}, {"_name": "b"})},
)

#: One search space for each type of dimension, and some combined.
SPACES: dict[str, Space] = {
    "choice": {"x": dimension("choice", "a", 1, 2.5, True, None, [1, 2])},
    "randint": {"x": dimension("randint", -3, 1000)},
    "uniform": {"x": dimension("uniform", -1, 2)},
    "quniform": {"x": dimension("quniform", 2, 10, 0.1)},
    "loguniform": {"x": dimension("loguniform", 1e-5, 10)},
    "qloguniform": {"x": dimension("qloguniform", 1, 100, 0.5)},
    "normal": {"x": dimension("normal", 3, 2)},
    "qnormal": {"x": dimension("qnormal", 0, 5, 0.25)},
    "lognormal": {"x": dimension("lognormal", 0, 1)},
    "qlognormal": {"x": dimension("qlognormal", 3, 1, 0.5)},
    "nested": {"model": NESTED, "y": dimension("uniform", 0, 1)},
    "mixed": {"x": dimension("choice", "a", "b"), "y": dimension("normal", 0, 1), "z": dimension("randint", 0, 50)},
}


class TunerContract:
    """The contract of tuners as tests: inherit, and override `make`."""

    #: Whether two instances with the same seed propose the same; False for tuners without a seed.
    seeded = True
    #: Number of proposals per test; more than a tuner needs to leave its starting phase.
    proposals = 30

    def make(self) -> Tuner:
        """A new tuner, always with the same seed."""
        raise NotImplementedError

    def spaces(self) -> Mapping[str, Space]:
        return SPACES

    def another_space(self) -> Space:
        """A search space that shares no parameters with `spaces`."""
        return {"new": dimension("uniform", 5, 6)}

    def contains(self, space: Space, parameters: object) -> bool:
        """Whether the tuner may propose these parameters in this space."""
        return parse(space).contains(parameters)

    def test_proposals_follow_from_space_and_seed(self) -> None:
        """Proposals are in the space; the same seed gives the same ones; a new space applies to the next one."""
        another = self.another_space()
        for tuner, space in self._tuners():
            proposed = run(tuner, self.proposals)
            assert [parameters for parameters in proposed if not self.contains(space, parameters)] == []
            if self.seeded:
                assert proposed == run(self._new(space), self.proposals)
            tuner.update_search_space(another)
            assert self.contains(another, through_json(tuner.propose(self.proposals)))

    def test_several_proposals_have_the_ids_asked_for(self) -> None:
        for tuner, _ in self._tuners():
            batch = tuner.propose_many([4, 5, 7])
            assert [number for number, _ in batch.proposals] == [4, 5, 7]
            assert not batch.exhausted

    def test_a_restored_tuner_goes_on_as_if_nothing_had_happened(self) -> None:
        for name, space in self.spaces().items() if self.seeded else ():
            steady = self._new(space)
            parameters = [through_json(steady.propose(number)) for number in range(self.proposals)]
            # results come out of order, some trials failed, the last ones still run
            ended = sorted(range(self.proposals - 3), key=lambda number: (number * 7) % 11)
            history = [result(number, parameters[number], odd_score(number, parameters[number])) for number in ended]
            for item in history:
                steady.learn(item)
            pending = [_pending(number, parameters[number]) for number in range(self.proposals)[-3:]]
            restored = self._new(space)
            restored.restore(history=history, unfinished=pending, imported=[])
            assert _next(restored, self.proposals) == _next(steady, self.proposals), name

    def test_late_odd_and_foreign_results_are_tolerated(self) -> None:
        for tuner, space in self._tuners():
            parameters = [through_json(tuner.propose(number)) for number in range(self.proposals)]
            for number in reversed(range(self.proposals)):
                tuner.learn(result(number, parameters[number], odd_score(number, parameters[number])))
            tuner.learn(result(None, {"no such": "dimension"}, 1.0))
            tuner.import_data([{"parameter": parameters[0], "value": 0.5}, {"parameter": "nonsense", "value": None}])
            assert self.contains(space, through_json(tuner.propose(self.proposals)))

    def test_its_state_is_json(self) -> None:
        for tuner, _ in self._tuners():
            tuner.propose(0)
            assert isinstance(through_json(tuner.state()), dict)

    def _tuners(self) -> Iterator[tuple[Tuner, Space]]:
        for space in self.spaces().values():
            yield self._new(space), space

    def _new(self, space: Space) -> Tuner:
        tuner = self.make()
        tuner.update_search_space(space)
        return tuner


def run(tuner: Tuner, proposals: int) -> list[object]:
    """Proposes and learns, one trial after the other; returns the proposals."""
    proposed = []
    for number in range(proposals):
        proposed.append(through_json(tuner.propose(number)))
        tuner.learn(result(number, proposed[-1], score(proposed[-1])))
    return proposed


def result(parameter_id: int | None, parameters: object, value: object) -> Result:
    return Result(
        parameter_id=parameter_id,
        parameters=parameters,
        value=value,
        status=TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED,
        trial_id=f"t{parameter_id}",
    )


def score(parameters: object) -> float:
    """A number that depends only on the parameters."""
    return sum(ord(letter) * weight for letter, weight in zip(json.dumps(parameters), count(1), strict=False)) % 101


def odd_score(number: int, parameters: object) -> object:
    """Every kind of final result that a trial may have."""
    odd: dict[int, object] = {0: None, 1: math.nan, 2: math.inf, 3: {"default": score(parameters), "loss": 1}, 4: "bad"}
    return odd.get(number, score(parameters))


def through_json(value: object) -> object:
    """The value as it comes back from the store."""
    return json.loads(json.dumps(value))


def _pending(number: int, parameters: object) -> Pending:
    return Pending(parameter_id=number, parameters=parameters, trial_id=f"t{number}")


def _next(tuner: Tuner, first: int) -> list[object]:
    return [through_json(tuner.propose(number)) for number in range(first, first + 3)]
