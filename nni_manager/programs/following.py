"""Waiting for an experiment in a program: progress, and the question that Ctrl-C asks."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial
from typing import Protocol

from nni_manager.domain.errors import NniManagerError
from nni_manager.programs import bars
from nni_manager.programs.progress import Display
from nni_manager.programs.waiting import ExperimentFailed, StateFeed, States, StreamEnded, StreamEnds, WaitEnd, Watch

#: Seconds between two looks at the time while no state arrives.
_TICK_S = 0.5


class Followed(Protocol):
    """The experiment that is waited for."""

    @property
    def id(self) -> str: ...

    def events(self, *, may_start: bool) -> States: ...

    def stop(self) -> None: ...

    def goes_on(self, *, may_start: bool) -> bool: ...

    def broken_off(self) -> str: ...


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
    verdict = _verdict(experiment, end_s, display)
    if verdict is not None and not verdict.is_good:
        raise ExperimentFailed(verdict.text)
    return verdict is not None


def _verdict(experiment: Followed, end_s: float | None, display: Display) -> WaitEnd | None:
    """Why waiting is over; None: the time is up."""
    watch, ends = Watch(display), StreamEnds(experiment.id)
    try:
        while True:
            before = watch.states
            ends.begin()
            try:
                with closing(StateFeed(partial(experiment.events, may_start=ends.may_start))) as feed:
                    return _until_verdict(feed, watch, end_s)
            except StreamEnded as end:
                wait_s = ends.note(end, heard=watch.states > before)
            if not _pause(wait_s, end_s):
                return None
            if not experiment.goes_on(may_start=ends.may_start):
                raise NniManagerError(experiment.broken_off())
    finally:
        watch.close()


def _pause(seconds: float, end_s: float | None) -> bool:
    """Waits; whether there is time left."""
    left_s = seconds if end_s is None else min(seconds, max(end_s - time.monotonic(), 0))
    time.sleep(left_s)
    return left_s == seconds


def _until_verdict(feed: StateFeed, watch: Watch, end_s: float | None) -> WaitEnd | None:
    """As `_verdict`, for one stream of states. Raises StreamEnded."""
    while end_s is None or time.monotonic() < end_s:
        left_s = _TICK_S if end_s is None else min(_TICK_S, max(end_s - time.monotonic(), 0))
        if (verdict := watch.take(feed.next(left_s))) is not None:
            return verdict
    return None


_QUESTION = "\nExperiment {id} is still at work: [s]top it, [l]eave it at work, or [c]ontinue to wait? "


def _goes_on(experiment: Followed) -> bool:
    """Asks what Ctrl-C is to do; whether waiting goes on. Without a person the experiment is stopped, as by
    `nnictl create --foreground`; a second Ctrl-C leaves it at work."""
    # at a terminal, or in a notebook, whose kernel replaces `input`
    is_a_person_there = "ipykernel" in sys.modules or bool(sys.stdin and sys.stdin.isatty())
    answer = input(_QUESTION.format(id=experiment.id)).strip().lower() if is_a_person_there else "s"
    if answer.startswith("c"):
        return True
    if not answer.startswith("l"):
        experiment.stop()
    return False
