"""The verbs that an experiment's tuner process answers, independent of the process.

==============  =========================================================  =======================================
verb            arguments                                                  result
==============  =========================================================  =======================================
start           search_space, tuner (or null), assessor (or null),         {proposes_ahead, watches, withdraws}
                history, unfinished, imported
propose         ids                                                        {proposals: [{parameter_id,
                                                                           parameters [, continues]}],
                                                                           exhausted [, owed]}
learn           results                                                    {}
judge           trials: [{trial_id, parameter_id, values, from             {stop: [trial_id]}
                [, steps, earlier]}]
search_space    search_space [, withdrawn]                                 {withdraws}
import          data: [{parameter, value}] [, withdrawn]                   {}
adopt           trials [, withdrawn]                                       {}
state           –                                                          {tuner: a few figures}
==============  =========================================================  =======================================

Proposals that a tuner generates in threads of its own are `owed`. The event ``proposals`` says that one of them is
ready for the next `propose`, which may have no new ids.

`tuner` and `assessor`: {name, class_name, code_directory, class_args}, with either a name or a class; each is null in
the process that does not run it. For our own, `tuner` also has `expected`: {trials: a number or null, concurrency}.
`history` and `results`, in the order of ends: {parameter_id or null, parameters, value or null, status, trial_id,
source} and, with an assessor, `intermediates`. `unfinished`, in the order of creation, and `trials`: {parameter_id,
parameters, trial_id, source}. `withdrawn`: ids of proposals that become no trials; `withdraws`: their parameters, or
others, are proposed again. `imported`: one list of {parameter, value} for each import. `continues`: parameter id of an
earlier proposal; the new trial begins with the checkpoint of its trial. `values`: all intermediate results so far; the
first `from` of them were judged before. `steps`: of these results, if the trial reported some, and `earlier`: [[step,
value]] of the attempts that it continues; also with `intermediates`. `watches`: the tuner wants them, too. A tuner that
stops trials may do so at any time: each answer may have `stop`.

An exception in a verb is answered as an error of kind ``raised``, with the traceback as `details`.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

from trial_runner.protocol import encode

Message = Dict[str, Any]
_log = logging.getLogger("tuner_host")


class HostedTuner(ABC):
    """A tuner as the verbs call it. Trials have the form of `history`, `results` and `unfinished`."""

    #: Whether proposals may be requested before the results that could improve them are in.
    proposes_ahead = False
    #: Number of proposals that are being generated, as of the last `propose`.
    owed = 0
    #: Called by a thread of the tuner that has a proposal.
    on_news: Callable[[], None]
    #: Whether it gets intermediate results, like NNI's advisors.
    watches = False

    @property
    def withdraws(self) -> bool:
        """Whether unused proposals may be withdrawn at any time, as others replace them."""
        return False

    @abstractmethod
    def load_checkpoint(self) -> None:
        """Restores an experiment's past. Called before all others."""

    @abstractmethod
    def update_search_space(self, search_space: Any) -> None: ...

    @abstractmethod
    def restore(self, history: List[Message], unfinished: List[Message], imported: List[List[Message]]) -> None:
        """Called once, after the first search space."""

    @abstractmethod
    def propose(self, parameter_ids: List[int]) -> Tuple[Sequence[Tuple[int, Any]], bool]:
        """(number, parameters) of the available proposals, and whether there will never be another one."""

    def continues(self, parameter_id: int) -> Optional[int]:
        """The number of an earlier proposal that this one continues with more of its budget, so that its trial begins
        with the other one's checkpoint; None: it continues none. Called right after `propose`."""
        return None

    @abstractmethod
    def learn(self, result: Message) -> None: ...

    @abstractmethod
    def import_data(self, data: List[Message]) -> None: ...

    def adopt(self, trial: Message) -> None:  # noqa: B027 - as in NNI, users' classes hear of it when it has ended
        """Adds a running trial with a user's parameters."""

    def withdraw(self, parameter_ids: List[int]) -> None:  # noqa: B027 - NNI's classes cannot take back a proposal
        """Notes proposals that become no trials."""

    def watch(self, trials: List[Message]) -> None:  # noqa: B027 - most tuners go by final results
        """Adds intermediate results of running trials, as for `judge`."""

    def take_stops(self) -> List[str]:
        """Ids of trials that the tuner stops, each once."""
        return []

    @abstractmethod
    def state(self) -> Message: ...

    @abstractmethod
    def close(self) -> None: ...


class HostedAssessor(ABC):
    """An assessor as the verbs call it. `history`: all intermediate results so far; `steps`: None, or their ascending
    steps from 0, for an assessor that uses them."""

    #: It judges learning curves by step. Otherwise it gets the results of the attempt by their count.
    goes_by_steps = False

    @abstractmethod
    def load_checkpoint(self) -> None: ...

    @abstractmethod
    def judge(self, trial_id: str, history: Sequence[Any], steps: Optional[Sequence[int]] = None) -> bool:
        """Whether the trial may continue; called for each result."""

    @abstractmethod
    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[Any], steps: Optional[Sequence[int]] = None
    ) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Verbs:
    """The verbs of one tuner, one assessor or both. `sentences`: exceptions whose texts are shown without the class's
    name."""

    def __init__(
        self,
        make_tuner: Callable[[Message], HostedTuner],
        make_assessor: Callable[[Message], HostedAssessor],
        sentences: Tuple[Type[BaseException], ...],
    ) -> None:
        self._make_tuner = make_tuner
        self._make_assessor = make_assessor
        self._sentences = sentences
        self._tuner: Optional[HostedTuner] = None
        self._assessor: Optional[HostedAssessor] = None
        #: Called by any thread when an owed proposal is ready.
        self.on_news: Callable[[], None] = lambda: None
        self._verbs: Dict[str, Callable[[Message], Message]] = {
            "start": self._start,
            "propose": self._propose,
            "learn": self._learn,
            "judge": self._judge,
            "search_space": self._search_space,
            "import": self._import,
            "adopt": self._adopt,
            "state": lambda _: {"tuner": self._started.state()},
        }

    def answer(self, request: Message) -> bytes:
        """The frame that answers a request; never raises because of an algorithm."""
        try:
            result = self._verbs[request["verb"]](request)
            return encode({"id": request["id"], "result": self._with_stops(result)})
        except (Exception, SystemExit) as error:
            _log.exception("%s failed", request.get("verb"))
            return encode({"id": request.get("id"), "error": self._described(error)})

    def close(self) -> None:
        """Closes the algorithms before the process ends; never raises because of an algorithm."""
        for algorithm in (self._tuner, self._assessor):
            try:
                if algorithm is not None:
                    algorithm.close()
            except (Exception, SystemExit):
                _log.exception("the algorithm failed to close")

    def _start(self, request: Message) -> Message:
        self._tuner, self._assessor = None, None
        has_past = bool(request["history"] or request["unfinished"] or request["imported"])
        tuner = self._make_tuner(request["tuner"]) if request["tuner"] is not None else None
        if request["assessor"] is not None:
            self._assessor = self._make_assessor(request["assessor"])
        for algorithm in (tuner, self._assessor):
            if algorithm is not None and has_past:
                algorithm.load_checkpoint()
        if tuner is not None:
            tuner.on_news = self.on_news
            tuner.update_search_space(request["search_space"])
            tuner.restore(request["history"], request["unfinished"], request["imported"])
        self._end_trials(request["history"])
        self._tuner = tuner
        what = "tuner" if tuner is not None else "assessor"
        _log.info("%s started, %d earlier results", what, len(request["history"]))
        return {name: getattr(tuner, name, False) for name in ("proposes_ahead", "watches", "withdraws")}

    def _propose(self, request: Message) -> Message:
        made, exhausted = self._started.propose(request["ids"])
        proposals = [self._proposal(number, values) for number, values in made]
        answer = {"proposals": proposals, "exhausted": exhausted}
        return {**answer, "owed": self._started.owed} if self._started.owed else answer

    def _proposal(self, number: int, values: Any) -> Message:
        continued = self._started.continues(number)
        told = {} if continued is None else {"continues": continued}
        return {"parameter_id": number, "parameters": values, **told}

    def _learn(self, request: Message) -> Message:
        for item in request["results"]:
            if self._tuner is not None or self._assessor is None:
                self._started.learn(item)
        self._end_trials(request["results"])
        return {}

    def _judge(self, request: Message) -> Message:
        if self._tuner is not None:
            self._tuner.watch(request["trials"])
        return {"stop": [trial["trial_id"] for trial in request["trials"] if not self._may_go_on(trial)]}

    def _search_space(self, request: Message) -> Message:
        self._withdraw(request)
        self._started.update_search_space(request["search_space"])
        return {"withdraws": self._started.withdraws}

    def _import(self, request: Message) -> Message:
        self._withdraw(request)
        self._started.import_data(request["data"])
        return {}

    def _adopt(self, request: Message) -> Message:
        self._withdraw(request)
        for trial in request["trials"]:
            self._started.adopt(trial)
        return {}

    def _withdraw(self, request: Message) -> None:
        if request.get("withdrawn"):
            self._started.withdraw(request["withdrawn"])

    @property
    def _started(self) -> HostedTuner:
        if self._tuner is None:
            raise RuntimeError("the tuner has not been started, or its start failed")
        return self._tuner

    def _with_stops(self, result: Message) -> Message:
        stops = self._tuner.take_stops() if self._tuner is not None else []
        return {**result, "stop": [*result.get("stop", []), *stops]} if stops else result

    def _end_trials(self, items: List[Message]) -> None:
        if self._assessor is None:
            return
        for item in items:
            values = item.get("intermediates") or []
            curve = _curve(item, values) if self._assessor.goes_by_steps else (values, None)
            self._assessor.trial_end(item["trial_id"], item["status"] == "SUCCEEDED", *curve)

    def _may_go_on(self, trial: Message) -> bool:
        values, assessor = trial["values"], self._assessor
        if assessor is None:
            return True
        histories = (values[:count] for count in range(trial["from"] + 1, len(values) + 1))
        if not (assessor.goes_by_steps and trial.get("steps")):
            return all(assessor.judge(trial["trial_id"], history) for history in histories)
        return all(assessor.judge(trial["trial_id"], *_curve(trial, history)) for history in histories)

    def _described(self, error: BaseException) -> Message:
        message = str(error) if isinstance(error, self._sentences) else f"{type(error).__name__}: {error}"
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return {"kind": "raised", "message": message, "details": "".join(lines)}


def _curve(trial: Message, values: Sequence[Any]) -> Tuple[Sequence[Any], Optional[Sequence[int]]]:
    """The results of a learning curve up to the step of the last of `values`, and their steps; None: by their count.
    Of two results with the same step the later one counts."""
    if not trial.get("steps") or not values:
        return values, None
    steps = trial["steps"]
    known = {step: value for step, value in trial["earlier"]}
    known.update((steps[number], value) for number, value in enumerate(values))
    rising = sorted(step for step in known if step <= steps[len(values) - 1])
    return [known[step] for step in rising], rising
