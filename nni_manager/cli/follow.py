"""Waits for an experiment's end in the foreground, showing how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nni_manager.cli import progress
from nni_manager.cli.command_group import FAILED, INTERRUPTED
from nni_manager.cli.display import Display
from nni_manager.cli.ending import seen_out
from nni_manager.cli.progress import State
from nni_manager.cli.state_feed import StateFeed, StreamEnded
from nni_manager.cli.verdict import Verdict, judge, passing_hold
from nni_manager.domain.errors import NniManagerError

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


def follow(client: ManagerClient, id: str, display: Display, clock: Callable[[], float] = time.monotonic) -> int:
    """Answers the exit code. An experiment that is done is closed; Ctrl-C stops it; in trouble it is left as it is.

    Raises NniManagerError when the daemon goes away, or stops working on the experiment.
    """
    try:
        verdict = _Watch(StateFeed(lambda: client.events(id)), display, clock).wait()
        click.echo(verdict.text, err=not verdict.is_good)
        if verdict.is_done:
            with seen_out(client):
                client.stop(id)
            click.echo(f"Experiment {id} is closed.")
    except KeyboardInterrupt:
        return _interrupt(client, id)
    except StreamEnded:
        raise NniManagerError(_broken_off(client, id)) from None
    return 0 if verdict.is_good else FAILED


class _Watch:
    """Shows each state, and in between what the clock changes."""

    def __init__(self, feed: StateFeed, display: Display, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._display = display
        self._clock = clock
        self._state: State | None = None
        self._told_s = 0.0
        self._noted = ""

    def wait(self) -> Verdict:
        """Raises StreamEnded."""
        while (verdict := self._turn()) is None:
            pass
        return verdict

    def _turn(self) -> Verdict | None:
        news = self._feed.next(self._display.tick_s)
        verdict = self._take(news) if news is not None else None
        if self._state is not None:
            now = progress.read(self._state, since_s=self._clock() - self._told_s)
            (self._display.close if verdict else self._display.show)(now)
        return verdict

    def _take(self, news: State) -> Verdict | None:
        self._state, self._told_s = news, self._clock()
        sentence = passing_hold(news)
        if sentence and sentence != self._noted:
            self._display.note(f"Waiting: {sentence}")
        self._noted = sentence
        return judge(news)


def _interrupt(client: ManagerClient, id: str) -> int:
    click.echo(f"\nStopping experiment {id}; Ctrl-C again leaves that to the daemon …", err=True)
    with seen_out(client):
        client.stop(id)
    click.echo(f"Experiment {id} is stopped; continue it with `nnictl resume {id}`.", err=True)
    return INTERRUPTED


def _broken_off(client: ManagerClient, id: str) -> str:
    """Why there is no more news: nobody works on the experiment, or nobody answers at all."""
    from nni_manager.client.errors import Unreachable

    try:
        errors = client.experiment(id)["errors"]
    except Unreachable:
        return (
            "the daemon went away; its trials go on. Start it again with `nni-manager serve`, and follow the experiment"
            f" with `nnictl resume {id} --foreground`"
        )
    return f"experiment {id} is not at work any more{': ' if errors else ''}{'; '.join(errors)}"
