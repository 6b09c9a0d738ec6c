"""Follows an experiment to its end on the terminal: progress, the closing sentences, Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nni_manager.cli.command_group import FAILED, INTERRUPTED
from nni_manager.client.daemon_end import waiting_for_daemon_end
from nni_manager.domain.errors import NniManagerError
from nni_manager.programs import progress
from nni_manager.programs.progress import Display, State
from nni_manager.programs.waiting import StateFeed, StreamEnded, WaitEnd, broken_off, judge, passing_hold

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


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
        raise NniManagerError(broken_off(client, id)) from None
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
