"""Batch: the parameters that the user lists, each once, in order.

The search space is one `choice` that lists whole sets of parameters, and a trial gets one of them unchanged:
``{"sets": {"_type": "choice", "_value": [{…}, …]}}``. Results, including failures, change nothing. A restarted tuner
goes through the list from its beginning and skips each set as often as trials have it; so does a tuner whose list
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.space.parameters import text_of
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner


class Batch(Tuner):
    """Ends when all sets were proposed."""

    proposes_ahead = True

    def __init__(self) -> None:
        self._listed: list[object] = []
        #: The part of the list that no trial has, in order; None: computed on demand.
        self._left: list[object] | None = None
        #: Texts of parameters → number of trials that have or will have them.
        self._known: Counter[str] = Counter()
        #: Parameter id → text, of known trials.
        self._own: dict[int, str] = {}
        #: Ids of known trials with a user's parameters.
        self._given: set[str] = set()

    def update_search_space(self, search_space: object) -> None:
        self._listed, self._left = sets(search_space), None

    def propose(self, parameter_id: int) -> object:
        left = self._found_left()
        if not left:
            raise NoMoreProposals(permanently=True)
        parameters = left.pop(0)
        self._own[parameter_id] = text_of(parameters)
        self._known[self._own[parameter_id]] += 1
        return parameters

    def learn(self, result: Result) -> None:
        self._note(result)

    def adopt(self, pending: Pending) -> None:
        self._note(pending)

    def import_data(self, data: Data) -> None:
        self._known.update(text_of(entry.get("parameter")) for entry in data if entry.get("value") is not None)
        self._left = None

    @property
    def withdraws(self) -> bool:
        return True

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        self._known.subtract([self._own.pop(number) for number in parameter_ids if number in self._own])
        self._left = None

    def state(self) -> dict[str, object]:
        return {"proposed": len(self._own), "left": len(self._found_left())}

    def _note(self, trial: Pending | Result) -> None:
        """Skips the parameters of a trial, once."""
        if trial.parameter_id in self._own or trial.trial_id in self._given:
            return
        text = text_of(trial.parameters)
        if trial.parameter_id is not None:
            self._own[trial.parameter_id] = text
        else:
            self._given.add(trial.trial_id)
        self._known[text] += 1
        self._left = None

    def _found_left(self) -> list[object]:
        if self._left is None:
            known = self._known.copy()
            self._left = [one for one in self._listed if not _take(known, one)]
        return self._left


def sets(search_space: object) -> list[object]:
    """The listed sets. Raises InvalidInput."""
    entries = list(search_space.values()) if isinstance(search_space, Mapping) else []
    if len(entries) == 1 and isinstance(entries[0], Mapping) and entries[0].get("_type") == "choice":
        listed = entries[0].get("_value")
        if isinstance(listed, list | tuple) and listed:
            return list(listed)
    raise InvalidInput(
        "searchSpace: Batch takes one choice that lists whole sets of parameters; write"
        ' {"sets": {"_type": "choice", "_value": [{"x": 1}, {"x": 2}]}}.'
    )


def _take(known: Counter[str], parameters: object) -> bool:
    """Whether these parameters are known once more; uses up one occurrence."""
    text = text_of(parameters)
    known[text] -= 1
    return known[text] >= 0
