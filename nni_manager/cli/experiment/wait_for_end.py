"""Waits for an experiment's end. Its states are read in a thread, so that waiting can have a limit and be
interrupted."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nni_manager.cli.command_group import FAILED, INTERRUPTED
from nni_manager.cli.experiment import progress
from nni_manager.cli.experiment.progress import Display, State
from nni_manager.cli.experiment.stop import waiting_for_daemon_end
from nni_manager.cli.output.values import direction, number
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.trial import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


log = logging.getLogger(__name__)


class StreamEnded(Exception):
    """The stream of states is over: at its end or by an error."""


class StateFeed:
    """The states of an experiment as they arrive: a thread calls `states` and reads it to the end."""

    def __init__(self, states: Callable[[], Iterable[State]]) -> None:
        self._queue: queue.SimpleQueue[State | StreamEnded] = queue.SimpleQueue()
        # a daemon thread: an abandoned stream must not keep the process alive
        threading.Thread(target=self._read, args=(states,), name="events", daemon=True).start()

    def next(self, timeout_s: float | None) -> State | None:
        """The newest state; None when no state arrived for `timeout_s`. Raises StreamEnded."""
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

    def _read(self, states: Callable[[], Iterable[State]]) -> None:
        try:
            for state in states():
                self._queue.put(state)
        except Exception as error:  # the caller asks the daemon again, and gets the reason
            log.debug("the events broke off: %s", error)
        finally:
            self._queue.put(StreamEnded())


#: Holds that end without a person, so waiting goes on.
PASSING_HOLDS = frozenset({HoldCode.TUNER_SILENT, HoldCode.PLATFORM_UNAVAILABLE, HoldCode.STORE_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnd:
    """Why waiting for an experiment is over."""

    #: Nothing is left to run: the experiment may be closed.
    is_done: bool
    #: The experiment succeeded, see `_went_well`.
    is_good: bool
    text: str


def judge(state: State) -> WaitEnd | None:
    """Why waiting ends at this state of the experiment; None: it goes on."""
    status, id_ = state["status"], state["id"]
    if status == ExperimentStatus.DONE:
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
    """The sentence of a hold that ends without a person; empty: no such hold."""
    hold = state["hold"]
    return hold["sentence"] if hold and hold["code"] in PASSING_HOLDS else ""


def _went_well(state: State) -> bool:
    """Whether there is a best result, and at most half of the trials that ended failed."""
    counts = state["counts"]
    return state["best"] is not None and 2 * progress.failed(counts) <= progress.ended(counts)


def _any_success(state: State) -> bool:
    return bool(state["counts"].get(TrialStatus.SUCCEEDED))


def _result(state: State) -> str:
    id_, best = state["id"], state["best"]
    why = f"done, as {state['noMoreTrials']}" if state.get("noMoreTrials") else "done"
    failed = progress.failures(state)
    if best:
        parameters = json.dumps(best["parameters"], ensure_ascii=False, indent=2)
        value, which = number(best["value"]), direction(state.get("optimizeMode"))
        text = f"Experiment {id_} is {why}. Best{which} result {value}, trial {best['trialId']}:\n{parameters}"
        return f"{text}\n{failed}." if failed else text
    if _any_success(state):
        lead = f"Experiment {id_} is {why}, but {without_best(id_)}."
        return f"{lead} {failed}." if failed else lead
    return f"Experiment {id_} is {why}, but no trial succeeded; {failed or f'`nnictl trial ls {id_}` says why'}."


def without_best(id: str) -> str:
    """The sentence about trials that succeeded without a result that can be the best."""
    return f"no trial that succeeded has a final result that is a finite number; `nnictl trial ls {id}` says why"


def _trouble(state: State, what: str) -> str:
    id_, hold = state["id"], state["hold"] or {}
    sentences = [hold["sentence"]] if hold else []
    sentences += [sentence for sentence in state["errors"] if sentence not in sentences]
    lines = [f"Experiment {id_} {what}: {'; '.join(sentences) or 'see its log'}", hold.get("details", "").rstrip()]
    lines.append(f"Continue it with `nnictl resume {id_}`, or end it with `nnictl stop {id_}`.")
    return "\n".join(line for line in lines if line)


def follow(
    client: ManagerClient, id: str, display: Display, clock: Callable[[], float] = time.monotonic, where: str = ""
) -> int:
    """Waits for an experiment's end, showing its progress; returns the exit code. `where`: options of the commands that
    it suggests at the end, which name the same daemon.

    An experiment that is done is closed; Ctrl-C stops it; one on hold or in error stays open. Raises NniManagerError
    when the daemon goes away or stops working on the experiment.
    """
    try:
        verdict = _Watch(StateFeed(lambda: client.events(id)), display, clock).wait()
        click.echo(verdict.text, err=not verdict.is_good)
        if verdict.is_done:
            with waiting_for_daemon_end(client):
                client.stop(id)
            page, trials = f"`nnictl webui {id}{where}`", f"`nnictl trial ls {id}{where}`"
            click.echo(f"Experiment {id} is closed; {trials} shows its trials, {page} its page.")
    except KeyboardInterrupt:
        return _interrupt(client, id)
    except StreamEnded:
        raise NniManagerError(_broken_off(client, id)) from None
    return 0 if verdict.is_good else FAILED


class _Watch:
    """Shows each state of an experiment, and between states its elapsed time."""

    def __init__(self, feed: StateFeed, display: Display, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._display = display
        self._clock = clock
        self._state: State | None = None
        self._told_s = 0.0
        self._noted = ""

    def wait(self) -> WaitEnd:
        """Shows states until `judge` says that waiting is over. Raises StreamEnded."""
        while (verdict := self._turn()) is None:
            pass
        return verdict

    def _turn(self) -> WaitEnd | None:
        news = self._feed.next(self._display.tick_s)
        verdict = self._take(news) if news is not None else None
        if self._state is not None:
            now = progress.read(self._state, since_s=self._clock() - self._told_s)
            (self._display.close if verdict else self._display.show)(now)
        return verdict

    def _take(self, news: State) -> WaitEnd | None:
        self._state, self._told_s = news, self._clock()
        sentence = passing_hold(news)
        if sentence and sentence != self._noted:
            self._display.note(f"Waiting: {sentence}")
        self._noted = sentence
        return judge(news)


def _interrupt(client: ManagerClient, id: str) -> int:
    click.echo(f"\nStopping experiment {id}; Ctrl-C again leaves that to the daemon …", err=True)
    with waiting_for_daemon_end(client):
        client.stop(id)
    click.echo(f"Experiment {id} is stopped; continue it with `nnictl resume {id}`.", err=True)
    return INTERRUPTED


def _broken_off(client: ManagerClient, id: str) -> str:
    """Why the stream of states broke off: the experiment was closed, or the daemon does not answer."""
    from nni_manager.client.errors import Unreachable

    try:
        errors = client.experiment(id)["errors"]
    except Unreachable:
        return (
            "the daemon went away; its trials go on. Start it again with `nni-manager serve`, and follow the experiment"
            f" with `nnictl resume {id} --foreground`"
        )
    return f"experiment {id} is not at work any more{': ' if errors else ''}{'; '.join(errors)}"
