"""Waits for an experiment's end. A thread reads its states, so that waiting can time out and be interrupted."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nni_manager.client.formats import best_label, number
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import PASSING_HOLDS, ExperimentStatus
from nni_manager.domain.trial_status import TrialStatus, ended, failed
from nni_manager.programs import pareto_set, progress
from nni_manager.programs.progress import Display, State

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


log = logging.getLogger(__name__)


class ExperimentFailed(NniManagerError):
    """The experiment ended in an error, is on hold, or is done without a best result; the text is the reason."""


class StreamEnded(Exception):
    """The stream of states is over. `in_order`: the daemon ended it, for example at its own end; else it broke."""

    def __init__(self, *, in_order: bool) -> None:
        super().__init__("in order" if in_order else "broken off")
        self.in_order = in_order


class States(Protocol):
    """A stream of states. `close` may be called while another thread waits for the next state."""

    def __iter__(self) -> Iterator[State]: ...

    def close(self) -> None: ...


class StateFeed:
    """The states of an experiment as they arrive. A thread calls `states` and reads to its end, or until `close`."""

    def __init__(self, states: Callable[[], States]) -> None:
        self._queue: queue.SimpleQueue[State | StreamEnded] = queue.SimpleQueue()
        self._reader = StreamReader(states, self._queue.put)

    def close(self) -> None:
        """Close the stream and end its thread."""
        self._reader.close()

    def next(self, timeout_s: float | None) -> State | None:
        """The newest state; None if no state arrived within `timeout_s`. Raises StreamEnded."""
        try:
            news = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        while not isinstance(news, StreamEnded) and not self._queue.empty():
            later = self._queue.get()
            if isinstance(later, StreamEnded):
                self._queue.put(later)  # the last state before the end still counts
                break
            news = later
        if isinstance(news, StreamEnded):
            raise news
        return news


class StreamReader:
    """Reads a stream of states in a thread, and passes each state, and then its end, to a queue."""

    def __init__(self, states: Callable[[], States], put: Callable[[State | StreamEnded], object]) -> None:
        self._states = states
        self._put = put
        self._stream: States | None = None
        self._is_closed = False
        # a daemon thread: a stream that is still being opened must not keep the process alive
        threading.Thread(target=self._read, name="events", daemon=True).start()

    def close(self) -> None:
        """Close the stream, also while it is being opened, and so end the thread.

        Otherwise each wait with a timeout would leave a thread and a connection.
        """
        self._is_closed = True
        if self._stream is not None:
            with suppress(ValueError):  # a generator, such as a subclass's `events`, cannot be closed while it is read
                self._stream.close()

    def _read(self) -> None:
        in_order = False
        try:
            for state in self._opened():
                self._put(state)
            in_order = True
        except Exception as error:  # the caller asks the daemon again, and gets the reason
            log.debug("the events broke off: %s", error)
        finally:
            with suppress(RuntimeError):  # the loop of its queue is closed
                self._put(StreamEnded(in_order=in_order))

    def _opened(self) -> Iterable[State]:
        self._stream = stream = self._states()
        if self._is_closed:
            stream.close()
            return ()
        return stream


#: Seconds before each retry; after this number of consecutive ends, waiting stops.
_WAITS_S = (0.0, 1.0, 2.0, 5.0, 10.0)
#: Seconds after which the end of a stream counts as the first of a row.
_LASTING_S = 60.0


class StreamEnds:
    """Counts consecutive ends of an experiment's streams.

    A daemon that dies is started again, unless it dies each time. A daemon that was stopped intentionally is not.
    """

    def __init__(self, id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._id = id
        self._clock = clock
        self._in_a_row = 0
        self._began_s = clock()
        #: Whether a daemon may be started: the last one with a state did not end its stream in order.
        self.may_start = True

    def begin(self) -> None:
        """Note that a stream is requested."""
        self._began_s = self._clock()

    def note(self, end: StreamEnded, *, heard: bool) -> float:
        """Notes the end of a stream; returns the seconds until the next is to be asked for. `heard`: it had brought a
        state. Raises NniManagerError after too many ends in a row."""
        self.may_start = not end.in_order and (heard or self.may_start)
        if self._clock() - self._began_s >= _LASTING_S:
            self._in_a_row = 0
        if self._in_a_row == len(_WAITS_S):
            raise NniManagerError(
                f"stopped waiting for experiment {self._id}: the daemon exited {self._in_a_row + 1} times in a row. Its"
                " trials are still running; see the daemon log"
            )
        self._in_a_row += 1
        return _WAITS_S[self._in_a_row - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnd:
    """Why waiting for an experiment is over."""

    #: No trials are left to run; the experiment may be closed.
    is_done: bool
    #: The experiment succeeded, see `_went_well`.
    is_good: bool
    text: str


def judge(state: State) -> WaitEnd | None:
    """Why waiting ends at this state of the experiment, or None."""
    status, id_ = state["status"], state["id"]
    if ExperimentStatus.DONE in (status, state.get("endedAs")):
        return WaitEnd(is_done=True, is_good=_went_well(state), text=_result(state))
    if status == ExperimentStatus.ERROR:
        return WaitEnd(is_done=False, is_good=False, text=_trouble(state, "stopped on an error"))
    if status in (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED):
        text = f"Experiment {id_} was stopped before it was done; continue it with `nnictl resume {id_}`."
        return WaitEnd(is_done=False, is_good=False, text=text)
    if state["hold"] and state["hold"]["code"] not in PASSING_HOLDS:
        return WaitEnd(is_done=False, is_good=False, text=_trouble(state, "is on hold"))
    return None


def passing_hold(state: State) -> str:
    """The message of a hold that ends without a user's action, or empty."""
    hold = state["hold"]
    return hold["sentence"] if hold and hold["code"] in PASSING_HOLDS else ""


def _went_well(state: State) -> bool:
    """Whether there is a best result or a Pareto set, and at most half of the finished trials failed."""
    counts = state["counts"]
    has_best = state["best"] is not None or bool(state.get("paretoSet"))
    return has_best and 2 * failed(counts) <= ended(counts)


def _result(state: State) -> str:
    id_, best = state["id"], state["best"]
    why = f"done, as {state['noMoreTrials']}" if state.get("noMoreTrials") else "done"
    failed = progress.failures(state)
    if state.get("paretoSet"):
        text = f"Experiment {id_} is {why}. {pareto_set.text(state)}"
        return f"{text}\n{failed}." if failed else text
    if best:
        parameters = json.dumps(best["parameters"], ensure_ascii=False, indent=2)
        label, value = best_label(state).removeprefix("b"), number(best["value"])
        text = f"Experiment {id_} is {why}. B{label} result {value}, trial {best['trialId']}:\n{parameters}"
        return f"{text}\n{failed}." if failed else text
    if state["counts"].get(TrialStatus.SUCCEEDED):
        lead = f"Experiment {id_} is {why}, but {without_best(id_)}."
        return f"{lead} {failed}." if failed else lead
    return f"Experiment {id_} is {why}, but no trial succeeded; {failed or f'`nnictl trial ls {id_}` shows why'}."


def without_best(id: str) -> str:
    """The message about successful trials without a usable result."""
    return f"no successful trial has a finite number as final result; `nnictl trial ls {id}` shows why"


def _trouble(state: State, what: str) -> str:
    id_, hold = state["id"], state["hold"] or {}
    sentences = [hold["sentence"]] if hold else []
    sentences += [sentence for sentence in state["errors"] if sentence not in sentences]
    lines = [f"Experiment {id_} {what}: {'; '.join(sentences) or 'see its log'}", hold.get("details", "").rstrip()]
    lines.append(f"Continue it with `nnictl resume {id_}`, or end it with `nnictl stop {id_}`.")
    return "\n".join(line for line in lines if line)


def broken_off(client: ManagerClient, id: str) -> str:
    """Why the stream of states broke: the experiment was closed, or the daemon does not answer."""
    from nni_manager.client.connection import Unreachable

    try:
        errors = client.experiment(id)["errors"]
    except Unreachable:
        return gone(id)
    return f"experiment {id} is not running any more{': ' if errors else ''}{'; '.join(errors)}"


def gone(id: str) -> str:
    """The message about a daemon that has ended."""
    return (
        "the daemon ended; its trials keep running. Start it again with `nni-manager serve`, and follow the experiment"
        f" with `nnictl resume {id} --foreground`"
    )


#: Seconds of an experiment's wait before a note about it; seconds between notes.
_LASTING_WAIT_S, _WAIT_AGAIN_S = 10.0, 300.0


class Watch:
    """Shows the states of an experiment and the elapsed time, and decides when waiting ends."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display = display
        self._clock = clock
        self._state: State | None = None
        self._at_s = 0.0
        self._noted = ""
        #: When the experiment's wait is noted next; None: it waits for nothing.
        self._next_wait_s: float | None = None
        #: Number of states that were taken.
        self.states = 0

    def take(self, news: State | None) -> WaitEnd | None:
        """Why waiting is over, or None. `news`: a new state, or None."""
        verdict = None
        if news is not None:
            self._state, self._at_s = news, self._clock()
            self.states += 1
            verdict = judge(news)
            self._note(passing_hold(news))
        if self._state is not None and verdict is None:
            self._note_wait(self._state)
            self._display.show(self._now(self._state))
        return verdict

    def close(self) -> None:
        """Show the last state permanently."""
        if self._state is not None:
            self._display.close(self._now(self._state))

    def _now(self, state: State) -> progress.Progress:
        return progress.read(state, since_s=self._clock() - self._at_s)

    def _note(self, sentence: str) -> None:
        if sentence and sentence != self._noted:
            self._display.note(f"Waiting: {sentence}")
        self._noted = sentence

    def _note_wait(self, state: State) -> None:
        """Note what the experiment waits for after some time, because messages may change every second."""
        found = state.get("waitsFor")
        if not found:
            self._next_wait_s = None
        elif self._next_wait_s is None:
            self._next_wait_s = self._clock() + _LASTING_WAIT_S
        elif self._clock() >= self._next_wait_s and not passing_hold(state):
            self._display.note(f"Waiting: {found['sentence'].removeprefix('waits ')}")
            self._next_wait_s = self._clock() + _WAIT_AGAIN_S
