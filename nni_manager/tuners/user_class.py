"""A user's tuner: a class written for NNI, by name methods of `nni.tuner.Tuner`.

Nothing is imported from `nni` here: the class brings whichever `nni` it was written for. What an earlier process
proposed is unknown to this instance (calling `receive_trial_result` for it raises in most classes), so such results
reach it through `import_data`, once each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from nni_manager.domain.parameters import ParameterSource
from nni_manager.domain.trial import TrialStatus
from nni_manager.tuners.contract import Batch, Data, NoMoreProposals, Pending, Result, Tuner


class UserTuner(Tuner):
    """Speaks to `instance` as NNI's dispatcher does."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        #: Parameter ids this instance has proposed and not heard of yet.
        self._own: set[int] = set()
        self._proposed = 0
        self._imported = 0

    def update_search_space(self, search_space: object) -> None:
        self._instance.update_search_space(search_space)

    def propose(self, parameter_id: int) -> object:
        proposals = self.propose_many([parameter_id]).proposals
        if not proposals:
            raise NoMoreProposals(permanently=False)
        return proposals[0][1]

    def propose_many(self, parameter_ids: Sequence[int]) -> Batch:
        """As many as the class has at the moment; NNI's classes never say that there will be no more for ever."""
        values = [plain(parameters) for parameters in self._generate(list(parameter_ids))]
        proposals = list(zip(parameter_ids, values, strict=False))
        self._own.update(parameter_id for parameter_id, _ in proposals)
        self._proposed += len(proposals)
        return Batch(proposals=proposals)

    def learn(self, result: Result) -> None:
        customized = result.source is ParameterSource.CUSTOMIZED or result.parameter_id is None
        if customized and not getattr(self._instance, "_accept_customized", False):
            return
        if customized or result.parameter_id in self._own:
            self._own.discard(-1 if result.parameter_id is None else result.parameter_id)
            self._receive(result, customized)
        elif result.value is not None:
            self.import_data([_entry(result)])

    def import_data(self, data: Data) -> None:
        self._imported += len(data)
        if (method := getattr(self._instance, "import_data", None)) is not None:
            method([dict(entry) for entry in data])

    def restore(self, *, history: Sequence[Result], unfinished: Sequence[Pending], imported: Sequence[Data]) -> None:
        for data in imported:
            self.import_data(data)
        accepted = getattr(self._instance, "_accept_customized", False)
        known = [one for one in history if accepted or one.source is not ParameterSource.CUSTOMIZED]
        if finished := [_entry(result) for result in known if result.value is not None]:
            self.import_data(finished)

    def state(self) -> dict[str, object]:
        return {"proposed": self._proposed, "running": len(self._own), "imported": self._imported}

    def _generate(self, parameter_ids: list[int]) -> Sequence[object]:
        several = getattr(self._instance, "generate_multiple_parameters", None)
        generated: list[object] = []
        try:
            if several is not None:
                return list(several(parameter_ids))
            for parameter_id in parameter_ids:
                generated.append(self._instance.generate_parameters(parameter_id))
        except Exception as error:
            if not _is_no_more_trial(error):
                raise
        return generated

    def _receive(self, result: Result, customized: bool) -> None:
        if result.value is not None:
            receive = self._instance.receive_trial_result
            extra = {"customized": customized, "trial_job_id": result.trial_id}
            receive(result.parameter_id, result.parameters, result.value, **_accepted(receive, extra))
        if (end := getattr(self._instance, "trial_end", None)) is not None:
            end(result.parameter_id, result.status is TrialStatus.SUCCEEDED)


def plain(value: object) -> object:
    """What JSON can hold, in place of numpy's numbers and arrays. The rest stays, and fails where it is encoded."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else value


def _entry(result: Result) -> dict[str, object]:
    return {"parameter": result.parameters, "value": result.value}


def _is_no_more_trial(error: Exception) -> bool:
    return any(base.__name__ == "NoMoreTrialError" for base in type(error).__mro__)


def _accepted(function: Callable[..., object], extra: dict[str, object]) -> dict[str, object]:
    """NNI passes these to everyone; a class that names neither them nor ``**kwargs`` is spared."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}
