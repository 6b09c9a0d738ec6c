"""The child process of one experiment that hosts its tuner and assessor: ``python -m …tuner_process``.

It answers frames (`trial_runner.protocol`) on its standard input and output, one after the other, and ends quietly when
its input does. Its standard error is the experiment's ``dispatcher.log``; whatever the user's class prints goes there
too. It imports as little as possible, because an experiment's first trial waits for it.

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

An exception in a verb is answered as an error of kind ``raised``, with the traceback as `details`; the process lives
on. On SIGUSR1 it writes all stacks to its log and to the file ``$NNI_MANAGER_STACK_FILE``, also while a call hangs. The
file is emptied when the next request begins.
"""

from __future__ import annotations

import ctypes
import faulthandler
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import AlgorithmSpec
from nni_manager.domain.parameters import ParameterSource
from nni_manager.domain.trial import TrialStatus
from nni_manager.tuners import registry as tuners
from nni_manager.tuners.contract import Pending, Result, Tuner
from trial_runner.protocol import Decoder, encode

if TYPE_CHECKING:
    from nni_manager.assessors.contract import Assessor

STACK_FILE = "NNI_MANAGER_STACK_FILE"
_READ_SIZE = 1 << 16
#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1

Message = dict[str, Any]
_log = logging.getLogger("nni_manager.tuner_process")


def main() -> None:
    """Serves until standard input ends."""
    _die_with_parent()
    requests, answers = _take_pipes()
    _start_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent
    forget_stacks = _show_stacks_on_signal()
    host = Host()
    try:
        for request in _messages(requests):
            forget_stacks()
            _send(answers, host.answer(request))
    except BrokenPipeError:
        _log.debug("nobody reads the answers any more")
    _end()


class Host:
    """One tuner, perhaps an assessor, and the verbs."""

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

    def _start(self, request: Message) -> Message:
        self._tuner, self._assessor = None, None
        tuner = tuners.create(AlgorithmSpec(**request["tuner"]))
        if request.get("assessor") is not None:
            from nni_manager.assessors import registry as assessors

            self._assessor = assessors.create(AlgorithmSpec(**request["assessor"]))
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
    return Result(
        parameter_id=item["parameter_id"],
        parameters=item["parameters"],
        value=item["value"],
        status=TrialStatus(item["status"]),
        trial_id=item["trial_id"],
        source=ParameterSource(item["source"]),
    )


def _pending(item: Message) -> Pending:
    return Pending(
        parameter_id=item["parameter_id"],
        parameters=item["parameters"],
        trial_id=item["trial_id"],
        source=ParameterSource(item["source"]),
    )


def _described(error: BaseException) -> Message:
    """Our own errors are sentences already; others need their name."""
    message = str(error) if isinstance(error, NniManagerError) else f"{type(error).__name__}: {error}"
    return {"kind": "raised", "message": message, "details": "".join(traceback.format_exception(error))}


def _die_with_parent() -> None:
    """Also in a call that never comes back, and does not even let other threads run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take_pipes() -> tuple[int, int]:
    """Moves both pipes out of the way, so that `print` and `input` in the user's code cannot break the frames."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return requests, answers


def _start_log() -> None:
    """NNI's format; ``NNI_LOG_LEVEL`` is one of NNI's level names."""
    level = {"trace": "DEBUG", "fatal": "CRITICAL"}.get(word := os.environ.get("NNI_LOG_LEVEL", "info"), word.upper())
    logging.basicConfig(
        stream=sys.stderr,
        level=level if level in logging.getLevelNamesMapping() else logging.INFO,
        format="[%(asctime)s] %(levelname)s (%(name)s) %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _show_stacks_on_signal() -> Callable[[], None]:
    """Answers a function that empties the file.

    The file is written by C code right in the signal handler, so it shows even a call that never comes back to Python.
    The log follows from Python, as soon as it can.
    """
    signal.signal(signal.SIGUSR1, lambda *_: faulthandler.dump_traceback(sys.stderr, all_threads=True))
    path = os.environ.get(STACK_FILE)
    if not path:
        faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True, chain=False)
        return lambda: None
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True, chain=True)
    return lambda: os.ftruncate(file, 0) if os.fstat(file).st_size else None


def _messages(requests: int) -> Iterator[Message]:
    decoder = Decoder()
    while data := os.read(requests, _READ_SIZE):
        yield from decoder.feed(data)


def _send(answers: int, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(answers, view) :]


def _end() -> None:
    """At once: a thread the user's class left running must not keep the process."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
