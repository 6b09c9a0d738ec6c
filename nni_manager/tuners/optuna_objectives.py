"""The base of tuners for several objectives with Optuna: one study with the results so far.

A trial whose result lacks an objective, or has one that is not a finite number, cannot be ranked, so it is ignored.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from nni_manager.domain.objectives import Goals, Worth
from nni_manager.tuners.optuna_tuner import OptunaTuner, Picks, showing

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class ObjectivesTuner(OptunaTuner[Worth]):
    """`seed`: any whole number; default: a different one for every process."""

    def __init__(self, *, seed: int | None) -> None:
        super().__init__(seed=seed)
        self._goals = Goals(objectives={})
        #: The known results as Optuna's trials, for its sampler; created on demand.
        self._trials: list[FrozenTrial] = []
        self._shown: list[FrozenTrial] = []
        self._study: Study | None = None

    @abstractmethod
    def make_sampler(self, seed: int) -> BaseSampler:
        """The sampler of one proposal; gets constraints from `constraints_of`."""

    def attributes(self, number: int) -> dict[str, Any]:
        """Optuna's attributes of the result with that number, 0-based in the order of arrival."""
        return {}

    def lie(self) -> Worth | None:
        """The assumed values of running trials; None: they are left out."""
        return None

    def pursue(self, goals: Goals) -> None:
        self._goals = goals

    def judge(self, value: object) -> Worth | None:
        return self._goals.judge(value)

    def forget(self) -> None:
        self._trials, self._study = [], None

    def ask(self, parameter_id: int) -> dict[str, object]:
        import numpy

        study = self._current_study()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna deprecates `constraints_func`, which older releases need
            study.sampler = self.make_sampler(self.seed_of(parameter_id))
        # the logarithm of a `prior_weight` of 0, volumes of results near the greatest number
        with numpy.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return self.drawn(study.ask())

    def _current_study(self) -> Study:
        """The study, with all results and, with an assumed value, the running trials."""
        for picks, worth in self.known[len(self._trials) :]:
            self._trials.append(self._ended(picks, worth, self.attributes(len(self._trials))))
        lie = self.lie()
        running = [] if lie is None else self.running(lie)
        shown = [*self._trials, *(self._ended(picks, worth, {}) for picks, worth in running)]
        for number, trial in enumerate(shown):
            trial.number = trial._trial_id = number
        self._shown[:] = shown
        if self._study is None:
            self._study = _study(self._shown, len(self._goals.objectives))
        return self._study

    def _ended(self, picks: Picks, worth: Worth, attributes: dict[str, Any]) -> FrozenTrial:
        told = {**attributes, "constraints": list(worth.violations)}
        return self.frozen(picks, values=worth.losses, system_attrs=told)


def constraints_of(trial: FrozenTrial) -> list[float]:
    """The violations of a trial created by `ObjectivesTuner`, for Optuna's `constraints_func`."""
    return list(trial.system_attrs["constraints"])


def _study(trials: list[FrozenTrial], objectives: int) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(storage=showing(trials), directions=["minimize"] * objectives)
