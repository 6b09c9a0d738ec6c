"""`nnictl log`: what a trial has written, and (`manager_log`) what was written about an experiment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from nni_manager.cli import selection
from nni_manager.cli.session import Connect, connected
from nni_manager.domain.errors import NotFound
from nni_manager.domain.trial import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import LogPart, ManagerClient

#: Bytes asked for at a time.
PART = 1 << 20
#: Seconds between two looks at a log that is followed: growing text tells nobody.
FOLLOW_S = 0.5

#: Reads a log from an offset, or from the end when it is negative.
Read = Callable[[int], "LogPart"]


@click.group()
def log() -> None:
    """Show logs."""


@log.command("trial")
@connected
@selection.id_argument
@click.option("--trial_id", "--trial-id", "-T", "trial_id", metavar="TRIAL", help="Default: list every trial's folder.")
@click.option("--stdout", "name", flag_value="stdout", help="Only what it wrote to standard output.")
@click.option("--stderr", "name", flag_value="stderr", help="Only what it wrote to standard error.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
@click.option("--follow", is_flag=True, help="Go on until the trial ends.")
def log_trial(
    connect: Connect, *, id: str | None, trial_id: str | None, name: str | None, tail: int | None, follow: bool
) -> None:
    """Show where a trial's files are, and its log and output."""
    client = connect()
    id_ = selection.choose(client, id)
    if trial_id is None:
        _list_folders(client, id_)
        return
    trial = client.trial(id_, trial_id)
    if name is None:
        click.echo(trial["logPath"])
    names = [name] if name else ["trial.log", "stdout"]
    for each in names:
        read = reading(partial(client.trial_log, id_, trial_id, each))
        ended = partial(_has_ended, client, id_, trial_id)
        write_bytes(_text(read, tail, ended if follow and each == names[-1] else None))


def reading(part: Callable[..., LogPart]) -> Read:
    """By a method of the client, of which everything but `offset` and `limit` is given. An empty part while there is no
    such file yet."""
    from nni_manager.client.manager_client import LogPart

    def read(offset: int) -> LogPart:
        try:
            return part(offset=offset, limit=max(PART, -offset))
        except NotFound:
            return LogPart(data=b"", offset=max(offset, 0), size=0)

    return read


def follow_log(read: Read, offset: int, ended: Callable[[], bool], pause: Callable[[], object]) -> Iterator[bytes]:
    """What is added from `offset` on, until `ended` was true before a look that found nothing new."""
    while True:
        was_over = ended()
        part = read(offset)
        offset = part.end
        if part.data:
            yield part.data
        elif was_over:
            return
        else:
            pause()


def last_lines(read: Read, lines: int) -> tuple[bytes, int]:
    """The last lines of a log, and the offset of its end."""
    size = 4096
    while True:
        part = read(-size)
        kept = part.data.splitlines(keepends=True)
        if part.offset == 0 or len(kept) > lines:
            return b"".join(kept[-lines:]), part.end
        size *= 4


def write_bytes(parts: Iterator[bytes]) -> None:
    """Bytes as they are: a trial may write anything."""
    sys.stdout.flush()
    for part in parts:
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def _text(read: Read, tail: int | None, ended: Callable[[], bool] | None) -> Iterator[bytes]:
    text, offset = last_lines(read, tail) if tail else (b"", 0)
    yield text
    pause = partial(threading.Event().wait, FOLLOW_S)
    if ended is not None or tail is None:
        yield from follow_log(read, offset, ended or _already, pause)


def _already() -> bool:
    return True


def _has_ended(client: ManagerClient, id: str, trial_id: str) -> bool:
    return TrialStatus(client.trial(id, trial_id)["status"]).is_final


def _list_folders(client: ManagerClient, id: str) -> None:
    for trial in client.all_trials(id):
        click.echo(f"{trial['id']}  {trial['logPath']}")
