"""Batch: the parameters that the user lists, each once, in their order.

The search space is one `choice` that lists whole sets of parameters, and a trial gets one of them as it is:
``{"sets": {"_type": "choice", "_value": [{…}, …]}}``. Results change nothing, failed trials included. A restarted tuner
goes through the list from its beginning and leaves out what trials have, as often as they have it; so does one that
gets another list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nni_manager.domain.errors import InvalidInput
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner
from nni_manager.tuners.same_parameters import text_of


class Batch(Tuner):
    """Ends when all sets were proposed."""

    proposes_ahead = True

    def __init__(self) -> None:
        #: What is left of the list, in its order.
        self._left: list[object] = []
        #: Texts of parameters → how many trials have them, or will.
        self._known: Counter[str] = Counter()
        #: Ids of own proposals, which are known already.
        self._own: set[int] = set()

    def update_search_space(self, search_space: object) -> None:
        listed = sets(search_space)
        known = self._known.copy()
        self._left = [one for one in listed if not _take(known, one)]

    def propose(self, parameter_id: int) -> object:
        if not self._left:
            raise NoMoreProposals(permanently=True)
        parameters = self._left.pop(0)
        self._own.add(parameter_id)
        self._known[text_of(parameters)] += 1
        return parameters

    def learn(self, result: Result) -> None:
        self._note(result.parameter_id, result.parameters)

    def adopt(self, pending: Pending) -> None:
        self._note(pending.parameter_id, pending.parameters)

    def import_data(self, data: Data) -> None:
        for entry in data:
            if entry.get("value") is not None:
                self._note(None, entry.get("parameter"))

    def state(self) -> dict[str, object]:
        return {"proposed": len(self._own), "left": len(self._left)}

    def _note(self, parameter_id: int | None, parameters: object) -> None:
        """Leaves these parameters out, unless they are the instance's own proposal."""
        if parameter_id in self._own:
            return
        if parameter_id is not None:
            self._own.add(parameter_id)
        text = text_of(parameters)
        self._known[text] += 1
        found = next((place for place, one in enumerate(self._left) if text_of(one) == text), None)
        if found is not None:
            del self._left[found]


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
    """Whether these parameters are known once more; that once is used up."""
    text = text_of(parameters)
    known[text] -= 1
    return known[text] >= 0
