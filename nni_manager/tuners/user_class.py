"""A user's tuner: a class written for NNI, by name methods of `nni.tuner.Tuner`.

Nothing is imported from `nni` here: the class brings whichever `nni` it was written for. What an earlier process
proposed is unknown to this instance (calling `receive_trial_result` for it raises in most classes), so such results
reach it through `import_data`, once each.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from nni_manager.domain.algorithm import call_hook
from nni_manager.domain.arrays import restored
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.parameters import ParameterSource
from nni_manager.domain.trial import TrialStatus
from nni_manager.tuners.contract import Batch, Data, NoMoreProposals, Pending, Result, Tuner


class UserTuner(Tuner):
    """Speaks to `instance` as NNI's dispatcher does."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        #: What this instance has proposed and not heard of yet, by parameter id, as it made it: some classes look their
        #: parameters up again, and what went through JSON is not always equal to them.
        self._own: dict[int, object] = {}
        #: Proposals the class made by itself, for ids that it had nothing for when they were asked for.
        self._late: deque[tuple[int, object]] = deque()
        self._proposed = 0
        self._imported = 0

    def load_checkpoint(self) -> None:
        call_hook(self._instance, "load_checkpoint")

    def close(self) -> None:
        call_hook(self._instance, "_on_exit")

    def update_search_space(self, search_space: object) -> None:
        self._instance.update_search_space(search_space)

    def propose(self, parameter_id: int) -> object:
        proposals = self.propose_many([parameter_id]).proposals
        if not proposals:
            raise NoMoreProposals(permanently=False)
        return proposals[0][1]

    def propose_many(self, parameter_ids: Sequence[int]) -> Batch:
        """As many as the class has at the moment; NNI's classes never say that there will be no more for ever.

        What the class owes for earlier ids comes first, and it is asked for the rest.
        """
        late = [self._late.popleft() for _ in range(min(len(parameter_ids), len(self._late)))]
        wanted = list(parameter_ids[len(late) :])
        generated = self._generate(wanted) if wanted else ()
        return Batch(proposals=[*late, *map(self._noted, wanted, generated)])

    def learn(self, result: Result) -> None:
        customized = result.source is ParameterSource.CUSTOMIZED or result.parameter_id is None
        if customized and not getattr(self._instance, "_accept_customized", False):
            return
        if customized or result.parameter_id in self._own:
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

    def _noted(self, parameter_id: int, parameters: object) -> tuple[int, object]:
        self._own[parameter_id] = parameters
        self._proposed += 1
        return parameter_id, plain(parameters)

    def _propose_late(self, parameter_id: int, parameters: object) -> None:
        """The `st_callback` of NNI's dispatcher, by which PBT, Evolution and PPO answer a request after a result."""
        self._late.append(self._noted(parameter_id, parameters))

    def _generate(self, parameter_ids: list[int]) -> Sequence[object]:
        generated: list[object] = []
        try:
            if (several := getattr(self._instance, "generate_multiple_parameters", None)) is not None:
                return list(several(parameter_ids, **self._callback(several)))
            one = self._instance.generate_parameters
            for parameter_id in parameter_ids:
                generated.append(one(parameter_id, **self._callback(one)))
        except Exception as error:
            if not _is_no_more_trial(error):
                raise
        return generated

    def _callback(self, function: Callable[..., object]) -> dict[str, object]:
        return _accepted(function, {"st_callback": self._propose_late})

    def _receive(self, result: Result, customized: bool) -> None:
        parameters = result.parameters
        if not customized and result.parameter_id is not None:
            parameters = self._own.pop(result.parameter_id)
        if result.value is not None:
            receive = self._instance.receive_trial_result
            extra = {"customized": customized, "trial_job_id": result.trial_id}
            receive(result.parameter_id, parameters, restored(result.value), **_accepted(receive, extra))
        if (end := getattr(self._instance, "trial_end", None)) is not None:
            end(result.parameter_id, result.status is TrialStatus.SUCCEEDED)


def require_tuner(loaded: object, name: str) -> None:
    """Raises InvalidInput for a class that speaks to NNI's manager itself instead of being asked, as advisors do."""
    if any(base.__name__ == "MsgDispatcherBase" for base in getattr(loaded, "__mro__", ())):
        raise InvalidInput(
            f"className: {name} is an advisor, a class that takes the place of NNI's dispatcher, and those are not "
            "supported in this version; use a class derived from nni.tuner.Tuner, and an assessor beside it."
        )


def plain(value: object) -> object:
    """What JSON can hold, in place of numpy's numbers and arrays. The rest stays, and fails where it is encoded."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else value


def _entry(result: Result) -> dict[str, object]:
    return {"parameter": result.parameters, "value": restored(result.value)}


def _is_no_more_trial(error: Exception) -> bool:
    return any(base.__name__ == "NoMoreTrialError" for base in type(error).__mro__)


def _accepted(function: Callable[..., object], extra: dict[str, object]) -> dict[str, object]:
    """NNI passes these to everyone; a class that names neither them nor ``**kwargs`` is spared."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}
