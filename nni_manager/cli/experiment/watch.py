"""Experiments on the terminal: `nnictl top` shows the open ones, `follow` one until its end or Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from nni_manager.cli import output
from nni_manager.cli.command_group import FAILED, INTERRUPTED
from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.listing import shown_status
from nni_manager.cli.output import echo
from nni_manager.cli.session import Connect, ManagerClient, to_read
from nni_manager.client.formats import cut, moment, number
from nni_manager.domain.formats import duration
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.programs import following, progress
from nni_manager.programs.following import Followed
from nni_manager.programs.progress import Display

#: Terminal codes: cursor home and clear to the end; enter the alternate screen; leave it.
_CLEAR, _ENTER, _LEAVE = "\x1b[H\x1b[J", "\x1b[?1049h", "\x1b[?1049l"
#: Running trials shown per experiment.
_MOST_TRIALS = 100


@click.command()
@to_read
@click.option("--time", "-t", "interval", type=click.IntRange(1), default=3, show_default=True, help="Seconds.")
def top(connect: Connect, *, interval: int) -> None:
    """Show open experiments and running trials until Ctrl-C.

    Updates every few seconds; on a pipe, it prints once.
    """
    client = connect()
    if not sys.stdout.isatty():
        echo(_picture(client, time.time()))
        return
    pause = threading.Event()
    _redraw(lambda: _picture(client, time.time()), lambda: pause.wait(interval))


def _redraw(picture: Callable[[], str], pause: Callable[[], object]) -> None:
    """Redraw the screen until interrupted. Raises NniManagerError when the daemon ends."""
    sys.stdout.write(_ENTER)
    try:
        while True:
            columns, lines = shutil.get_terminal_size()
            shown = [cut(line, columns) for line in picture().splitlines()]
            more = len(shown) - lines + 1
            shown = [*shown[: lines - 2], f"… {more + 1} more lines"] if more > 0 else shown
            sys.stdout.write(_CLEAR + output.shown("\n".join(shown)))
            sys.stdout.flush()
            pause()
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _picture(client: ManagerClient, now_s: float) -> str:
    found = [one for one in client.experiments() if selection.is_open(one)]
    if not found:
        return "No experiment is open."
    return "\n\n".join(_experiment(client, one, now_s) for one in found)


def _experiment(client: ManagerClient, summary: dict[str, Any], now_s: float) -> str:
    experiment = client.experiment(summary["id"])
    facts = [experiment["id"], experiment["name"] or "", shown_status(experiment), experiment["platform"]]
    lines = ["  ".join(filter(None, facts)), f"  {progress.line(progress.read(experiment))}"]
    lines += [f"  {problem}" for problem in experiment["errors"]]
    running = client.trials(summary["id"], status=TrialStatus.RUNNING, limit=_MOST_TRIALS)["trials"]
    if running:
        headers = ("NO", "TRIAL", "STATUS", "STARTED", "TIME", "LAST RESULT")
        rows = output.plain_table(headers, (_row(one, now_s) for one in running))
        lines += [f"  {row}" for row in rows.splitlines()]
    return "\n".join(lines)


def _row(trial: dict[str, Any], now_s: float) -> tuple[str, ...]:
    started = trial["startedMs"]
    return (
        str(trial["sequenceId"]),
        trial["id"],
        trial["status"],
        moment(started),
        "" if started is None else duration(now_s * 1000 - started),
        number(trial["lastValue"]),
    )


def follow(experiment: Followed, display: Display, clock: Callable[[], float] = time.monotonic, where: str = "") -> int:
    """Show an experiment's progress until its end; return the exit code.

    An experiment that is done is closed, and Ctrl-C stops it. On hold or in error, it stays open. `where`: options that
    select the same daemon, for suggested commands. Raises NniManagerError if the daemon ends without a successor, or
    stops working on the experiment.
    """
    try:
        end = following.end_of(experiment, display, clock=clock)
        assert end is not None  # it has no time limit
        echo(end.text, err=not end.is_good)
        if end.is_done:
            experiment.stop()
            id = experiment.id
            trials, view = f"`nnictl trial ls {id}{where}`", f"`nnictl view {id}{where}`"
            echo(f"Experiment {id} is closed; {trials} shows its trials; {view} opens its page again.")
    except KeyboardInterrupt:
        return stop_interrupted(experiment)
    return 0 if end.is_good else FAILED


@contextmanager
def held_interrupts(start: str) -> Iterator[list[int]]:
    """Delay a first Ctrl-C and note it in the list, because the daemon completes the request anyway.

    A second Ctrl-C raises KeyboardInterrupt. `start`: such as ``started``.
    """
    held: list[int] = []

    def note(number: int, _frame: object) -> None:
        if held:
            echo(f"The experiment may have {start}; `nnictl experiment list` shows it.", err=True)
            raise KeyboardInterrupt
        held.append(number)
        echo(f"\nThe experiment stops as soon as it has {start}; press Ctrl-C again to keep it running …", err=True)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield held
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


def stop_interrupted(experiment: Followed) -> int:
    """Stop the experiment after a Ctrl-C; return the exit code."""
    id = experiment.id
    echo(f"\nStopping experiment {id}; press Ctrl-C again to leave the rest to the daemon …", err=True)
    experiment.stop()
    echo(f"Experiment {id} is stopped; continue it with `nnictl resume {id}`.", err=True)
    return INTERRUPTED
