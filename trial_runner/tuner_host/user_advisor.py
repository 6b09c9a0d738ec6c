"""A user's advisor: a class derived from NNI's `MsgDispatcherBase`, which is tuner and assessor in one.

NNI runs it as the program that communicates with its manager. Here its methods are called as its base class calls them,
without threads and socket: a fake channel collects the commands that the class sends. Parameters that it sends later
than requested are kept until the next request.

The class numbers its parameters in its own way; trials have the manager's numbers. This instance does not know
proposals of an earlier process: their results reach it through `handle_import_data`, if it has that.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from threading import Lock
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from trial_runner.tuner_host.user_tuner import Hooked, entry_of, plain, proposed
from trial_runner.tuner_host.verbs import HostedTuner, Message

BASE = "MsgDispatcherBase"


def base_of(loaded: object) -> Optional[type]:
    """The base class of that name of `loaded`; None: it is not an advisor."""
    return next((base for base in getattr(loaded, "__mro__", ()) if base.__name__ == BASE), None)


class Channel:
    """Stands in for NNI's `TunerCommandChannel`; commands may come from any thread of the class."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: Deque[Message] = deque()
        self._stops: List[str] = []
        self._error = ""

    def connect(self) -> None:
        """Does nothing: the socket does not exist."""

    def disconnect(self) -> None:
        """Does nothing."""

    def _send(self, command: Any, data: Any) -> None:
        """Handles a command of the class; commands other than trials and stops are ignored."""
        with self._lock:
            name = getattr(command, "name", str(command))
            if name == "NewTrialJob":
                self._jobs.append(json.loads(data))
            elif name == "KillTrialJob":
                self._stops.append(_id_in(data))
            elif name in ("Error", "SendTrialJobParameter"):
                self._error = "{}: {}".format(name, data)

    def take_job(self) -> Optional[Message]:
        with self._lock:
            return self._jobs.popleft() if self._jobs else None

    def take_stops(self) -> List[str]:
        with self._lock:
            stops, self._stops = self._stops, []
            return stops

    def check(self) -> None:
        """Raises RuntimeError for an error that the class has sent, and for a command of multi-phase trials."""
        with self._lock:
            error, self._error = self._error, ""
        if error:
            raise RuntimeError("the advisor sent {}".format(error))


def make_instance(make: Callable[[], Any], base: type) -> Tuple[Any, Channel]:
    """The advisor that `make` returns, and its channel."""
    channel, module = Channel(), sys.modules[base.__module__]
    setattr(module, "TunerCommandChannel", lambda *_: channel)  # noqa: B010 - what the module calls
    variables = getattr(module, "dispatcher_env_vars", None)
    if variables is not None:
        url = "ws://127.0.0.1/tuner"  # nothing listens there; the base only needs a text
        setattr(module, "dispatcher_env_vars", variables._replace(NNI_TUNER_COMMAND_CHANNEL=url))  # noqa: B010 - as above
    protocol = sys.modules.get("nni.runtime.protocol")
    if protocol is not None:
        setattr(protocol, "receiver", channel._send)  # noqa: B010 - of the stand-in, for classes of NNI 2
    return make(), channel


class UserAdvisor(Hooked, HostedTuner):
    """Calls `instance` as `MsgDispatcherBase` does."""

    watches = True

    def __init__(self, instance: Any, channel: Channel, base: type) -> None:
        self._instance = instance
        self._channel = channel
        self._base = base
        self._is_initialized = False
        #: Our number of running trials → what the class sent for them.
        self._own: Dict[int, Message] = {}
        #: Trial → number of its intermediate results that the class has.
        self._seen: Dict[str, int] = {}
        #: Trials that were requested from the class and not sent yet; it may send them at any time.
        self._owed = 0
        #: Trials that have ended since the last request; for each, NNI requests another one.
        self._freed = 0
        self._proposed = 0

    def update_search_space(self, search_space: Any) -> None:
        if self._is_initialized:
            self._instance.handle_update_search_space(search_space)
        else:
            self._is_initialized = True
            self._instance.handle_initialize(search_space)
        self._channel.check()

    def restore(self, history: List[Message], unfinished: List[Message], imported: List[List[Message]]) -> None:
        for data in imported:
            self.import_data(data)
        self.import_data([entry_of(one) for one in history if one["value"] is not None and _is_own(one)])

    def import_data(self, data: List[Message]) -> None:
        if data and self._has("handle_import_data"):
            self._instance.handle_import_data([dict(entry) for entry in data])
            self._channel.check()

    def propose(self, parameter_ids: List[int]) -> Tuple[Sequence[Tuple[int, Any]], bool]:
        """Everything that the class has sent; it cannot say that no more will come."""
        made = self._collect(parameter_ids)
        missing = len(parameter_ids) - len(made)
        wanted = max(missing - self._owed, self._freed) if missing else 0
        self._freed = 0
        if wanted > 0:
            self._owed += wanted
            self._instance.handle_request_trial_jobs(wanted)
            self._channel.check()
        return [*made, *self._collect(parameter_ids[len(made) :])], False

    def watch(self, trials: List[Message]) -> None:
        for trial in trials:
            job = self._own.get(trial["parameter_id"])
            if job is not None:
                self._report_new(trial["trial_id"], job, trial["values"])

    def take_stops(self) -> List[str]:
        return self._channel.take_stops()

    def learn(self, result: Message) -> None:
        if not _is_own(result):
            return
        job = self._own.pop(result["parameter_id"], None)
        if job is None:
            if result["value"] is not None:
                self.import_data([entry_of(result)])
            return
        self._freed += 1
        self._report_new(result["trial_id"], job, result.get("intermediates") or [])
        self._seen.pop(result["trial_id"], None)
        if result["value"] is not None:
            self._report(result["trial_id"], job, "FINAL", 0, result["value"])
        ended = {"trial_job_id": result["trial_id"], "event": result["status"], "hyper_params": json.dumps(job)}
        self._instance.handle_trial_end(ended)
        self._channel.check()

    def state(self) -> Message:
        return {"proposed": self._proposed, "running": len(self._own), "owed": self._owed}

    def _collect(self, parameter_ids: List[int]) -> List[Tuple[int, Any]]:
        made = []
        for parameter_id in parameter_ids:
            job = self._channel.take_job()
            if job is None:
                break
            self._owed = max(self._owed - 1, 0)
            self._proposed += 1
            self._own[parameter_id] = job
            made.append((parameter_id, plain(proposed(job["parameters"], self._instance))))
        return made

    def _report_new(self, trial_id: str, job: Message, values: Sequence[Any]) -> None:
        for number in range(self._seen.get(trial_id, 0), len(values)):
            self._report(trial_id, job, "PERIODICAL", number, values[number])
        self._seen[trial_id] = max(len(values), self._seen.get(trial_id, 0))

    def _report(self, trial_id: str, job: Message, kind: str, number: int, value: Any) -> None:
        told = {"parameter_id": job["parameter_id"], "trial_job_id": trial_id, "type": kind, "sequence": number}
        # in NNI's messages a result is JSON within JSON
        self._instance.handle_report_metric_data(dict(told, value=json.dumps(value)))
        self._channel.check()

    def _has(self, name: str) -> bool:
        """Whether the class defines a method that its base only refuses."""
        return getattr(type(self._instance), name, None) is not getattr(self._base, name, None)


def _is_own(trial: Message) -> bool:
    """Whether an advisor proposed its parameters; a user's have no place in its numbers."""
    return trial["parameter_id"] is not None and trial["source"] != "customized"


def _id_in(data: Any) -> str:
    try:
        return str(json.loads(data))
    except ValueError:
        return str(data)
