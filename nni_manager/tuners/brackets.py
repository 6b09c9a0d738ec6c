"""Brackets of successive halving: the next configuration to run, and its budget.

L. Li, K. Jamieson, G. DeSalvo, A. Rostamizadeh, A. Talwalkar, "Hyperband: A Novel Bandit-Based Approach to
Hyperparameter Optimization", JMLR 18 (2018), Algorithm 1: with ``s_max = floor(log_eta(R))``, for s from s_max down to
0 a bracket begins with ``n = ceil((s_max + 1) * eta**s / (s + 1))`` configurations of budget ``R * eta**-s``. In its
round i, ``floor(n * eta**-i)`` have the budget ``R * eta**(i - s)``: the best of the round before. After s = 0 it
restarts. Budgets above 1 are rounded down to whole numbers, as in NNI.

The next configuration depends only on the content of the brackets, not on the order of arrival: promoted configurations
of the oldest bracket first, then the first round of the oldest that is not full, then a new bracket. So brackets can be
restored from the known trials.

A configuration whose trial has no finite result is not promoted; with too few others, the next round is smaller.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

#: Tolerance for logarithms and quotients that are whole numbers except for rounding.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    #: Maximum number of its configurations.
    count: int
    budget: float


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A configuration with one budget: a trial."""

    parameter_id: int
    config: dict[str, object]
    bracket: Bracket
    #: Smaller is better, infinite without a usable result; None: it has not ended.
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The next run."""

    bracket: Bracket
    #: The promoted run; None: a new configuration.
    promoted: Run | None = None

    @property
    def budget(self) -> float:
        return self.bracket.budget


def largest(budgets: float, eta: int) -> int:
    """``s_max``, from the quotient of the largest and the smallest budget."""
    return math.floor(math.log(budgets, eta) + _EPSILON)


def rounds_of(s: int, s_max: int, eta: int, most: float) -> list[Round]:
    """The rounds of the bracket with that s; `most`: the largest budget."""
    first = math.ceil((s_max + 1) * eta**s / (s + 1) - _EPSILON)
    return [
        Round(count=math.floor(first / eta**i + _EPSILON), budget=_whole(most * float(eta) ** (i - s)))
        for i in range(s + 1)
    ]


def _whole(budget: float) -> float:
    return math.floor(budget + _EPSILON) if budget >= 1 else budget


class Bracket:
    """One bracket: its current round."""

    def __init__(self, rounds: list[Round]) -> None:
        self.rounds = rounds
        self.is_over = False
        #: Runs promoted to the current round that have not started, best first.
        self.waiting: list[Run] = []
        #: Texts of the configurations of its first round.
        self.configs: set[str] = set()
        self._number = 0
        self._runs: list[Run] = []
        self._ended = 0

    @property
    def budget(self) -> float:
        return self.rounds[self._number].budget

    @property
    def takes_new(self) -> bool:
        """Whether the first round has room for a configuration."""
        return self._number == 0 and len(self._runs) < self.rounds[0].count

    def add(self, parameter_id: int, config: dict[str, object], promoted: Run | None) -> Run:
        if promoted is not None:
            self.waiting.remove(promoted)
        if self._number == 0:
            self.configs.add(_text(config))
        run = Run(parameter_id=parameter_id, config=config, bracket=self)
        self._runs.append(run)
        return run

    def end(self, run: Run, loss: float) -> None:
        """Notes the loss of a run of the current round; the last one decides which runs are promoted."""
        run.loss = loss
        self._ended += 1
        if self._ended == len(self._runs) and not self.waiting and not self.takes_new:
            self._promote()

    def _promote(self) -> None:
        usable = [(run.loss, run.parameter_id, run) for run in self._runs if run.loss is not None]
        ranked = [run for loss, _, run in sorted(usable, key=lambda one: one[:2]) if math.isfinite(loss)]
        self._number += 1
        self._runs, self._ended = [], 0
        self.waiting = ranked[: self.rounds[self._number].count] if self._number < len(self.rounds) else []
        self.is_over = not self.waiting


class Brackets:
    """All unfinished brackets. `serial`: each begins when the previous one is finished."""

    def __init__(self, *, most: float, s_max: int, eta: int, serial: bool) -> None:
        self._cycle = [rounds_of(s, s_max, eta, most) for s in range(s_max, -1, -1)]
        self._serial = serial
        self._open: list[Bracket] = []
        self._running: dict[int, Run] = {}
        #: Number of started brackets.
        self.begun = 0

    def next(self) -> Offer | None:
        """The next run; None: something must end first."""
        for bracket in self._open:
            if bracket.waiting:
                return Offer(bracket=bracket, promoted=bracket.waiting[0])
        for bracket in self._open:
            if bracket.takes_new:
                return Offer(bracket=bracket)
        return None if self._serial and self._open else Offer(bracket=self._begin())

    def accept(self, offer: Offer, parameter_id: int, config: dict[str, object]) -> None:
        """Notes that the configuration runs."""
        self._running[parameter_id] = offer.bracket.add(parameter_id, config, offer.promoted)

    def end(self, parameter_id: int, loss: float) -> None:
        """Notes the loss of a run that has ended; ignores runs that are in no bracket."""
        if (run := self._running.pop(parameter_id, None)) is not None:
            run.bracket.end(run, loss)
            self._open = [bracket for bracket in self._open if not bracket.is_over]

    def has(self, config: dict[str, object]) -> bool:
        """Whether an unfinished bracket has this configuration."""
        text = _text(config)
        return any(text in bracket.configs for bracket in self._open)

    def put_back(self, parameter_id: int, config: dict[str, object], budget: float) -> None:
        """Finds the place of an earlier process's trial, in the order of the ids; ignores trials without one.

        Equal configurations are interchangeable: one that may be a promoted one counts as such.
        """
        offer = self._promotion_of(config, budget) or self._new_of(budget)
        if offer is not None:
            self.accept(offer, parameter_id, config)

    def _begin(self) -> Bracket:
        bracket = Bracket(self._cycle[self.begun % len(self._cycle)])
        self.begun += 1
        self._open.append(bracket)
        return bracket

    def _promotion_of(self, config: dict[str, object], budget: float) -> Offer | None:
        for bracket in self._open:
            for run in bracket.waiting if bracket.budget == budget else ():
                if _text(run.config) == _text(config):
                    return Offer(bracket=bracket, promoted=run)
        return None

    def _new_of(self, budget: float) -> Offer | None:
        if not any(rounds[0].budget == budget for rounds in self._cycle):
            return None
        while True:
            for bracket in self._open:
                if bracket.takes_new and bracket.budget == budget:
                    return Offer(bracket=bracket)
            self._begin()


def _text(config: dict[str, object]) -> str:
    return json.dumps(config, sort_keys=True)
