"""Hyperband: many configurations with small budgets, the best of them with larger ones; see `brackets`.

A trial gets its budget with its parameters, as `TRIAL_BUDGET`; `R` is the largest. A promoted configuration runs again,
with the checkpoint of its trial with the smaller budget. Trials that failed, were stopped or had no finite result count
as the worst, as in the authors' implementations (https://github.com/automl/HpBandSter). Trials with a user's
parameters, and imported results, are in no bracket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Le

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeModeName, default_number
from nni_manager.domain.space.parameters import ParameterSource
from nni_manager.domain.space.search_space import SearchSpace, parse
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.brackets import Brackets, largest
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner
from nni_manager.tuners.random import chosen_seed, draw

_MOST_DRAWS = 20
#: The parameter that contains a trial's budget.
BUDGET = "TRIAL_BUDGET"
#: Statuses without a usable result that say something about the parameters; a cancelled trial says nothing.
_BAD = (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED)


class BracketTuner(Tuner):
    """Base of tuners that assign budgets by brackets; new configurations are drawn from the search space."""

    def __init__(
        self, *, optimize_mode: str, least: float, most: float, eta: int, serial: bool, seed: int | None
    ) -> None:
        self.seed = chosen_seed(seed)
        self.space = SearchSpace(places=())
        self.most = most
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        self._shape = {"most": most, "s_max": largest(most / least, eta), "eta": eta, "serial": serial}
        self._brackets = self._new_brackets()
        self._running: set[int] = set()
        self._failed = 0
        #: Parameter id → that of the run with a smaller budget which it continues.
        self._continued: dict[int, int] = {}

    def sample(self, parameter_id: int) -> dict[str, object]:
        """A new configuration, without its budget."""
        return draw(self.space, self.seed, parameter_id)

    def observe(self, config: object, budget: float, loss: float) -> None:
        """Learns the result of a configuration; `loss` is infinite without a usable one."""

    def update_search_space(self, search_space: object) -> None:
        space = parse(search_space)
        if any(place.key == (BUDGET,) for place in space.places):
            raise InvalidInput(
                f"searchSpace.{BUDGET}: this name is reserved for the trial's budget; choose another one."
            )
        self.space = space
        self._brackets = self._new_brackets()

    def propose(self, parameter_id: int) -> dict[str, object]:
        offer = self._brackets.next()
        if offer is None:
            raise NoMoreProposals(permanently=False)
        config = self._new_config(parameter_id) if offer.promoted is None else offer.promoted.config
        self._brackets.accept(offer, parameter_id, config)
        self._running.add(parameter_id)
        if offer.promoted is not None:
            self._continued[parameter_id] = offer.promoted.parameter_id
        return {**config, BUDGET: offer.budget}

    def continues(self, parameter_id: int) -> int | None:
        return self._continued.pop(parameter_id, None)

    def _new_config(self, parameter_id: int) -> dict[str, object]:
        """A configuration that is in no open bracket, if one is found soon, so that none is measured twice."""
        config = self.sample(parameter_id)
        for number in range(_MOST_DRAWS):
            if not self._brackets.has(config):
                break
            config = draw(self.space, self.seed, f"{parameter_id}/{number}")
        return config

    def learn(self, result: Result) -> None:
        loss = self._loss(result.value)
        self._failed += math.isinf(loss)
        if result.parameter_id is not None:
            self._running.discard(result.parameter_id)
            self._brackets.end(result.parameter_id, loss)
        if math.isfinite(loss) or result.status in _BAD:
            self.observe(*self._split(result.parameters), loss)

    def import_data(self, data: Data) -> None:
        for entry in data:
            loss = self._loss(entry.get("value"))
            if math.isfinite(loss):
                self.observe(*self._split(entry.get("parameter")), loss)

    def restore(self, *, history: Sequence[Result], unfinished: Sequence[Pending], imported: Sequence[Data]) -> None:
        """Finds the place of each trial in the order of the ids, with its end if it has ended: a round's results are
        known before the configurations that it promoted."""
        for data in imported:
            self.import_data(data)
        losses = {result.trial_id: self._loss(result.value) for result in history}
        known: list[Result | Pending] = [*history, *unfinished]
        own = [
            (one.parameter_id, one)
            for one in known
            if one.parameter_id is not None and one.source is not ParameterSource.CUSTOMIZED
        ]
        for parameter_id, trial in sorted(own, key=lambda one: one[0]):
            config, budget = self._split(trial.parameters)
            if isinstance(config, dict) and self.space.contains(config):
                self._brackets.put_back(parameter_id, config, budget)
            if trial.trial_id in losses:
                self._brackets.end(parameter_id, losses[trial.trial_id])
        super().restore(history=history, unfinished=unfinished, imported=())

    def adopt(self, pending: Pending) -> None:
        if pending.parameter_id is not None:
            self._running.add(pending.parameter_id)

    def state(self) -> dict[str, object]:
        return {"running": len(self._running), "failed": self._failed, "brackets": self._brackets.begun}

    def _new_brackets(self) -> Brackets:
        return Brackets(**self._shape)  # type: ignore[arg-type]  # its own arguments

    def _loss(self, value: object) -> float:
        number = default_number(value)
        return self._sign * number if number is not None and math.isfinite(number) else math.inf

    def _split(self, parameters: object) -> tuple[object, float]:
        """The configuration and its budget; default: the largest."""
        if not isinstance(parameters, Mapping) or BUDGET not in parameters:
            return parameters, self.most
        config = {name: value for name, value in parameters.items() if name != BUDGET}
        budget = parameters[BUDGET]
        return config, budget if isinstance(budget, int | float) else self.most


class Hyperband(BracketTuner):
    """`R`: the largest budget; `eta`: one of this number is promoted; `exec_mode`: whether a bracket waits for the end
    of the previous one (``serial``), or begins when there is room for a trial (``parallelism``)."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        R: Annotated[int, Ge(1), Le(10**9)] = 60,
        eta: Annotated[int, Ge(2)] = 3,
        exec_mode: Literal["serial", "parallelism"] = "parallelism",
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(optimize_mode=optimize_mode, least=1, most=R, eta=eta, serial=exec_mode == "serial", seed=seed)
