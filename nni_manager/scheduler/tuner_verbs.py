"""The verbs that an experiment's tuner process answers, in whatever process they are asked.

==============  =========================================================  =======================================
verb            arguments                                                  result
==============  =========================================================  =======================================
start           search_space, tuner, assessor (or null), history,          {proposes_ahead}
                unfinished, imported
propose         ids                                                        {proposals: [{parameter_id,
                                                                           parameters}], exhausted}
learn           results                                                    {}
judge           trials: [{trial_id, values, from}]                         {stop: [trial_id]}
search_space    search_space                                               {}
import          data: [{parameter, value}]                                 {}
state           –                                                          {tuner: a few figures}
==============  =========================================================  =======================================

`tuner` and `assessor`: the fields of AlgorithmSpec. `history` and `results`, in the order of ends: {parameter_id or
null, parameters, value or null, status, trial_id, source} and, with an assessor, `intermediates`. `unfinished`, in the
order of creation: {parameter_id, parameters, trial_id, source}. `imported`: one list of {parameter, value} for each
import. `values`: all intermediate results so far, of which the first `from` have been judged before.

An exception in a verb is answered as an error of kind ``raised``, with the traceback as `details`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import AlgorithmSpec
from nni_manager.domain.parameters import ParameterSource
from nni_manager.domain.trial import TrialStatus
from nni_manager.tuners import registry as tuners
from nni_manager.tuners.contract import Pending, Result, Tuner
from trial_runner.protocol import encode

if TYPE_CHECKING:
    from nni_manager.assessors.contract import Assessor

Message = dict[str, Any]
_log = logging.getLogger("nni_manager.tuner_process")


class Verbs:
    """What is done with one tuner and perhaps an assessor."""

    def __init__(self) -> None:
        self._tuner: Tuner | None = None
        self._assessor: Assessor | None = None
        self._verbs: Mapping[str, Callable[..., Message]] = {
            "start": self._start,
            "propose": self._propose,
            "learn": self._learn,
            "judge": self._judge,
            "search_space": self._search_space,
            "import": self._import,
            "state": self._state,
        }

    def answer(self, request: Message) -> bytes:
        """The frame that answers a request; never raises because of what an algorithm does."""
        try:
            return encode({"id": request["id"], "result": self._verbs[request["verb"]](request)})
        except (Exception, SystemExit) as error:
            _log.exception("%s failed", request.get("verb"))
            return encode({"id": request.get("id"), "error": _described(error)})

    def close(self) -> None:
        """The process ends; never raises because of what an algorithm does."""
        for algorithm in (self._tuner, self._assessor):
            try:
                if algorithm is not None:
                    algorithm.close()
            except (Exception, SystemExit):
                _log.exception("the algorithm failed to close")

    def _start(self, request: Message) -> Message:
        self._tuner, self._assessor = None, None
        has_past = bool(request["history"] or request["unfinished"] or request["imported"])
        tuner = tuners.create(AlgorithmSpec(**request["tuner"]))
        if request.get("assessor") is not None:
            from nni_manager.assessors import registry as assessors

            self._assessor = assessors.create(AlgorithmSpec(**request["assessor"]))
        for algorithm in (tuner, self._assessor):
            if algorithm is not None and has_past:
                algorithm.load_checkpoint()
        tuner.update_search_space(request["search_space"])
        tuner.restore(
            history=[_result(item) for item in request["history"]],
            unfinished=[_pending(item) for item in request["unfinished"]],
            imported=request["imported"],
        )
        self._end_trials(request["history"])
        self._tuner = tuner
        _log.info("tuner started, %d earlier results", len(request["history"]))
        return {"proposes_ahead": tuner.proposes_ahead}

    def _propose(self, request: Message) -> Message:
        batch = self._started.propose_many(request["ids"])
        proposals = [{"parameter_id": number, "parameters": values} for number, values in batch.proposals]
        return {"proposals": proposals, "exhausted": batch.exhausted}

    def _learn(self, request: Message) -> Message:
        for item in request["results"]:
            self._started.learn(_result(item))
        self._end_trials(request["results"])
        return {}

    def _judge(self, request: Message) -> Message:
        return {"stop": [trial["trial_id"] for trial in request["trials"] if not self._may_go_on(trial)]}

    def _search_space(self, request: Message) -> Message:
        self._started.update_search_space(request["search_space"])
        return {}

    def _import(self, request: Message) -> Message:
        self._started.import_data(request["data"])
        return {}

    def _state(self, request: Message) -> Message:
        return {"tuner": self._started.state()}

    @property
    def _started(self) -> Tuner:
        if self._tuner is None:
            raise RuntimeError("the tuner has not been started, or its start failed")
        return self._tuner

    def _end_trials(self, items: list[Message]) -> None:
        if self._assessor is None:
            return
        for item in items:
            success = item["status"] == TrialStatus.SUCCEEDED
            self._assessor.trial_end(item["trial_id"], success, item.get("intermediates") or [])

    def _may_go_on(self, trial: Message) -> bool:
        values = trial["values"]
        steps = range(trial["from"] + 1, len(values) + 1)
        return self._assessor is None or all(self._assessor.judge(trial["trial_id"], values[:step]) for step in steps)


def _result(item: Message) -> Result:
    return Result(**_assignment(item), value=item["value"], status=TrialStatus(item["status"]))


def _pending(item: Message) -> Pending:
    return Pending(**_assignment(item))


def _assignment(item: Message) -> dict[str, Any]:
    """What is said of every trial: whose it is, its parameters, and where they came from."""
    told = {name: item[name] for name in ("parameter_id", "parameters", "trial_id")}
    return {**told, "source": ParameterSource(item["source"])}


def _described(error: BaseException) -> Message:
    """Our own errors are sentences already; others need their name."""
    message = str(error) if isinstance(error, NniManagerError) else f"{type(error).__name__}: {error}"
    return {"kind": "raised", "message": message, "details": "".join(traceback.format_exception(error))}
