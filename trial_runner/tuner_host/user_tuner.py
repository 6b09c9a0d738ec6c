"""A user's tuner and assessor: classes written for NNI, with the methods of `nni.tuner.Tuner` and
`nni.assessor.Assessor`.

Nothing is imported from `nni` here: the class brings the `nni` that it was written for. This instance does not know
proposals of an earlier process (`receive_trial_result` raises for them in most classes), so their results reach it
through `import_data`, once each.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from trial_runner.tuner_host.verbs import HostedAssessor, HostedTuner, Message

_ITEMS = "__ndarray__"
_NOTHING = (
    "tuner {} returned None instead of parameters: return a dictionary from generate_parameters, or raise"
    " nni.NoMoreTrialError when there is nothing to propose"
)


class Hooked:
    """The optional methods of a user's class that NNI calls."""

    _instance: Any

    def load_checkpoint(self) -> None:
        _call_hook(self._instance, "load_checkpoint")

    def close(self) -> None:
        _call_hook(self._instance, "_on_exit")


def _call_hook(instance: Any, name: str) -> None:
    hook = getattr(instance, name, None)
    if hook is not None:
        hook()


class UserTuner(Hooked, HostedTuner):
    """Calls `instance` as NNI's dispatcher does."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        #: Pending proposals by parameter id, as the instance returned them: some classes look their parameters up, and
        #: a JSON round trip does not always preserve equality.
        self._own: Dict[int, Any] = {}
        #: Proposals that the class made later, for ids that it had nothing for at the request.
        self._late: Deque[Tuple[int, Any]] = deque()
        #: `save_checkpoint_dir` of a proposal → the latest parameter id with it.
        self._saving: Dict[str, int] = {}
        self._proposed = 0
        self._imported = 0

    def update_search_space(self, search_space: Any) -> None:
        self._instance.update_search_space(search_space)

    def propose(self, parameter_ids: List[int]) -> Tuple[Sequence[Tuple[int, Any]], bool]:
        """As many proposals as the class has now; NNI's classes cannot say that no more will come.

        Proposals that the class owes for earlier ids come first.
        """
        late = [self._late.popleft() for _ in range(min(len(parameter_ids), len(self._late)))]
        wanted = parameter_ids[len(late) :]
        generated = self._generate(wanted) if wanted else ()
        return [*late, *map(self._noted, wanted, generated)], False

    def continues(self, parameter_id: int) -> Optional[int]:
        """Handles NNI's PBT, which names folders: a trial loads what an earlier one saved."""
        parameters = self._own.get(parameter_id)
        if not isinstance(parameters, dict) or not isinstance(parameters.get("save_checkpoint_dir"), str):
            return None
        earlier = self._saving.get(str(parameters.get("load_checkpoint_dir")))
        self._saving[parameters["save_checkpoint_dir"]] = parameter_id
        return earlier

    def learn(self, result: Message) -> None:
        customized = _is_customized(result) or result["parameter_id"] is None
        if customized and not self._accepts_customized:
            return
        if customized or result["parameter_id"] in self._own:
            self._receive(result, customized)
        elif result["value"] is not None:
            self.import_data([entry_of(result)])

    def import_data(self, data: List[Message]) -> None:
        self._imported += len(data)
        method = getattr(self._instance, "import_data", None)
        if method is not None:
            method([dict(entry) for entry in data])

    def restore(self, history: List[Message], unfinished: List[Message], imported: List[List[Message]]) -> None:
        for data in imported:
            self.import_data(data)
        known = [one for one in history if self._accepts_customized or not _is_customized(one)]
        finished = [entry_of(result) for result in known if result["value"] is not None]
        if finished:
            self.import_data(finished)

    def state(self) -> Message:
        return {"proposed": self._proposed, "running": len(self._own), "imported": self._imported}

    @property
    def _accepts_customized(self) -> bool:
        """Whether the class wants results of a user's parameters, which it must request."""
        return bool(getattr(self._instance, "_accept_customized", False))

    def _noted(self, parameter_id: int, parameters: Any) -> Tuple[int, Any]:
        self._own[parameter_id] = parameters
        self._proposed += 1
        return parameter_id, plain(proposed(parameters, self._instance))

    def _propose_late(self, parameter_id: int, parameters: Any) -> None:
        """The `st_callback` of NNI's dispatcher, with which PBT, Evolution and PPO answer a request after a result."""
        self._late.append(self._noted(parameter_id, parameters))

    def _generate(self, parameter_ids: List[int]) -> Sequence[Any]:
        generated: List[Any] = []
        several = getattr(self._instance, "generate_multiple_parameters", None)
        try:
            if several is not None:
                return list(proposed(several(parameter_ids, **self._callback(several)), self._instance))
            one = self._instance.generate_parameters
            for parameter_id in parameter_ids:
                generated.append(one(parameter_id, **self._callback(one)))
        except Exception as error:
            if not any(base.__name__ == "NoMoreTrialError" for base in type(error).__mro__):
                raise
        return generated

    def _callback(self, function: Callable[..., Any]) -> Dict[str, Any]:
        return _accepted(function, {"st_callback": self._propose_late})

    def _receive(self, result: Message, customized: bool) -> None:
        number, parameters = result["parameter_id"], result["parameters"]
        if not customized:
            parameters = self._own.pop(number)
        if result["value"] is not None:
            receive = self._instance.receive_trial_result
            extra = {"customized": customized, "trial_job_id": result["trial_id"]}
            receive(number, parameters, restored(result["value"]), **_accepted(receive, extra))
        end = getattr(self._instance, "trial_end", None)
        if end is not None:
            end(number, result["status"] == "SUCCEEDED")


def proposed(answer: Any, instance: Any) -> Any:
    """The proposal of a user's class. Raises TypeError for None, which no trial can read."""
    if answer is None:
        raise TypeError(_NOTHING.format(type(instance).__name__))
    return answer


def plain(value: Any) -> Any:
    """The value with numpy's numbers and arrays as plain JSON values. Other values are unchanged, and fail when
    encoded."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else value


def _is_customized(result: Message) -> bool:
    """Whether a user set its parameters."""
    return bool(result["source"] == "customized")


def entry_of(result: Message) -> Message:
    """The result in the form of an import."""
    return {"parameter": result["parameters"], "value": restored(result["value"])}


def _accepted(function: Callable[..., Any], extra: Dict[str, Any]) -> Dict[str, Any]:
    """NNI passes these to every class; they are omitted if it accepts neither them nor ``**kwargs``."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return extra
    return {name: value for name, value in extra.items() if name in parameters}


class UserAssessor(Hooked, HostedAssessor):
    """Calls `instance` as NNI's dispatcher does."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        #: For each running trial, the number of its values that the instance has seen.
        self._seen: Dict[str, int] = {}

    def judge(self, trial_id: str, history: Sequence[Any], steps: Optional[Sequence[int]] = None) -> bool:
        self._seen[trial_id] = len(history)
        return _is_good(self._instance.assess_trial(trial_id, restored(history)))

    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[Any], steps: Optional[Sequence[int]] = None
    ) -> None:
        """Notes a trial's end; as in NNI, not of trials without intermediate results."""
        seen = self._seen.pop(trial_id, 0)
        for step in range(seen + 1, len(history) + 1):
            # after a restart, or if the last values came with the end: it must know them before the end
            self._instance.assess_trial(trial_id, restored(history[:step]))
        end = getattr(self._instance, "trial_end", None)
        if (seen or history) and end is not None:
            end(trial_id, success)


def _is_good(answer: object) -> bool:
    if isinstance(answer, bool):
        return answer
    name = getattr(answer, "name", None)
    if name not in ("Good", "Bad"):
        raise TypeError(f"assess_trial must return AssessResult.Good or AssessResult.Bad, but it returned {answer!r}")
    return str(name) == "Good"


def restored(value: object) -> object:
    """The same value with its arrays restored; unchanged without numpy."""
    if isinstance(value, dict):
        if _ITEMS in value:
            return _array(value)
        return {key: restored(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [restored(inner) for inner in value]
    return value


def _array(written: Dict[str, object]) -> object:
    """`written`: the items in lists, their ``dtype`` and the array's ``shape``; one without any may lack both."""
    try:
        import numpy

        made = numpy.asarray(written[_ITEMS], dtype=written.get("dtype"))  # type: ignore[call-overload]  # JSON
        return made.reshape(written.get("shape", made.shape))
    except (ImportError, TypeError, ValueError):  # a user's dictionary
        return written
