"""Follows an experiment to its end, also across daemons: progress, and the question after Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.programs import bars, waiting
from nni_manager.programs.progress import Display
from nni_manager.programs.waiting import ExperimentFailed, StateFeed, States, StreamEnded, StreamEnds, WaitEnd, Watch

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Seconds to wait for the next daemon after one that was ended on purpose, as by an upgrade; seconds between two looks.
RETURN_S, _LOOK_S = 60.0, 0.1
#: Seconds of waiting after which a sentence says so.
_SILENT_S = 3.0


class Followed(Protocol):
    """The followed experiment."""

    @property
    def id(self) -> str: ...

    def events(self, *, may_start: bool) -> States: ...

    def stop(self) -> None: ...

    def goes_on(self, *, may_start: bool) -> bool: ...

    def broken_off(self) -> str: ...


class FollowedExperiment:
    """An experiment whose daemon may be replaced while it is followed.

    `connect`: returns a client of the daemon, which it starts if none runs. `find`: a client of the running one, or
    None.
    """

    def __init__(self, id: str, connect: Callable[[], ManagerClient], find: Callable[[], ManagerClient | None]) -> None:
        self.id = id
        self._connect = connect
        self._find = find

    def events(self, *, may_start: bool) -> States:
        """Its states, until it is closed or the daemon ends.

        Raises Unreachable if no daemon runs and none may be started, or if the daemon dies.
        """
        return self._reached(may_start=may_start).events(self.id)

    def stop(self) -> None:
        """Stop it; return when its trials, and a daemon that ends with its last experiment, have ended.

        If the daemon dies, the next one is asked. Raises NniManagerError if several die in a row.
        """
        from nni_manager.client.connection import Unreachable
        from nni_manager.client.daemon_end import waiting_for_daemon_end

        ends = StreamEnds(self.id)
        while True:
            ends.begin()
            try:
                client = self._connect()
                with waiting_for_daemon_end(client):
                    client.stop(self.id)
                return
            except Unreachable:
                time.sleep(ends.note(StreamEnded(in_order=False), heard=False))

    def goes_on(self, *, may_start: bool) -> bool:
        """Whether it may still be open after the end of the stream of its states.

        `may_start`: start a daemon if none runs; else wait for the next one, up to `RETURN_S`. Raises NniManagerError
        if none starts.
        """
        from nni_manager.client.connection import Unreachable

        began_s, is_told = time.monotonic(), False
        while True:
            try:
                state = self._reached(may_start=may_start).experiment(self.id)
            except Unreachable:  # a dying daemon may still accept a connection; the next stream shows it
                waited_s = time.monotonic() - began_s
                if may_start or waited_s > RETURN_S:
                    return may_start
                if waited_s > _SILENT_S and not is_told:
                    print(f"The daemon has ended. Waiting up to {RETURN_S:.0f} s for the next one.", file=sys.stderr)
                    is_told = True
                time.sleep(_LOOK_S)
            else:
                return not ExperimentStatus(state["status"]).is_closed

    def broken_off(self) -> str:
        """Why the stream of its states ended, one sentence. Starts no daemon."""
        client = self._find()
        return waiting.gone(self.id) if client is None else waiting.broken_off(client, self.id)

    def _reached(self, *, may_start: bool) -> ManagerClient:
        """The daemon's client. Raises Unreachable if none runs and none may be started."""
        from nni_manager.client.connection import Unreachable

        client = self._connect() if may_start else self._find()
        if client is None:
            raise Unreachable(waiting.gone(self.id))
        return client


def wait(experiment: Followed, timeout_s: float | None, *, shown: bool) -> bool:
    """Whether the experiment is done within the time. Raises ExperimentFailed, NniManagerError, KeyboardInterrupt."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            return _follow(experiment, end, bars.display() if shown else bars.Silent())
        except KeyboardInterrupt:
            if not _goes_on(experiment):
                raise


def _follow(experiment: Followed, end_s: float | None, display: Display) -> bool:
    verdict = end_of(experiment, display, end_s)
    if verdict is not None and not verdict.is_good:
        raise ExperimentFailed(verdict.text)
    return verdict is not None


def end_of(
    experiment: Followed,
    display: Display,
    end_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> WaitEnd | None:
    """Show the experiment until its end, and return the reason; None if the time `end_s` is over.

    The daemon may be replaced in the meantime. Raises NniManagerError if no other daemon replaces it.
    """
    watch, ends = Watch(display, clock), StreamEnds(experiment.id)
    try:
        while True:
            before = watch.states
            ends.begin()
            try:
                with closing(StateFeed(partial(experiment.events, may_start=ends.may_start))) as feed:
                    return _until_end(feed, watch, display.tick_s, end_s)
            except StreamEnded as end:
                wait_s = ends.note(end, heard=watch.states > before)
            if not _pause(wait_s, end_s):
                return None
            if not experiment.goes_on(may_start=ends.may_start):
                raise NniManagerError(experiment.broken_off())
    finally:
        watch.close()


def _pause(seconds: float, end_s: float | None) -> bool:
    """Wait; return whether there is time left."""
    left_s = seconds if end_s is None else min(seconds, max(end_s - time.monotonic(), 0))
    time.sleep(left_s)
    return left_s == seconds


def _until_end(feed: StateFeed, watch: Watch, tick_s: float | None, end_s: float | None) -> WaitEnd | None:
    """Like `end_of`, for one stream of states. Raises StreamEnded."""
    while end_s is None or time.monotonic() < end_s:
        limits = [tick_s] if tick_s is not None else []
        limits += [max(end_s - time.monotonic(), 0)] if end_s is not None else []
        if (verdict := watch.take(feed.next(min(limits, default=None)))) is not None:
            return verdict
    return None


_QUESTION = "\nExperiment {id} is still running: [s]top it, [l]eave it running, or [c]ontinue to wait? "


def _goes_on(experiment: Followed) -> bool:
    """Ask what to do after Ctrl-C; return whether to continue waiting.

    Without a terminal, the experiment is stopped, as by `nnictl create --foreground`. A second Ctrl-C leaves it
    running.
    """
    # at a terminal, or in a notebook, whose kernel replaces `input`
    is_a_person_there = "ipykernel" in sys.modules or bool(sys.stdin and sys.stdin.isatty())
    answer = input(_QUESTION.format(id=experiment.id)).strip().lower() if is_a_person_there else "s"
    if answer.startswith("c"):
        return True
    if not answer.startswith("l"):
        experiment.stop()
    return False
