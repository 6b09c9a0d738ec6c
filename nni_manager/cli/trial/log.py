"""`nnictl log`: the files of a trial, and (`manager_log`) the logs of an experiment."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.selection import choose_trial, trial_help
from nni_manager.cli.session import Connect, to_read
from nni_manager.domain.errors import NotFound
from nni_manager.domain.trial import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import LogPart, ManagerClient

#: Bytes of a log per request.
PART = 1 << 20
#: Seconds between two reads of a log that is followed: no event reports added text.
FOLLOW_S = 0.5

#: Reads a log from an offset; a negative one counts from the end.
Read = Callable[[int], "LogPart"]


@click.group()
def log() -> None:
    """Show logs."""


@log.command("trial")
@to_read
@selection.id_argument
@click.option(
    "--trial_id",
    "--trial-id",
    "-T",
    "trial_id",
    metavar="TRIAL",
    help=f"{trial_help} Default: list every trial's folder.",
)
@click.option("--stdout", "name", flag_value="stdout", help="Only what it wrote to standard output.")
@click.option("--stderr", "name", flag_value="stderr", help="Only what it wrote to standard error.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
@click.option("--follow", is_flag=True, help="Go on until the trial ends.")
def log_trial(
    connect: Connect, *, id: str | None, trial_id: str | None, name: str | None, tail: int | None, follow: bool
) -> None:
    """Show where a trial's files are, its log, and what it wrote to stdout and stderr."""
    client = connect()
    id_ = selection.choose(client, id)
    if trial_id is None:
        _list_folders(client, id_)
        return
    trial = choose_trial(client, id_, trial_id)
    if name is None:
        click.echo(trial["logPath"])
    names = [name] if name else ["trial.log", "stdout", "stderr"]
    places = []
    for each in names:
        read = reading(partial(client.trial_log, id_, trial["id"], each))
        offset = _write_start(read, tail, heading=None if name or each != "stderr" else b"stderr:\n")
        places.append((read, offset))
    if follow:
        ended = partial(_has_ended, client, id_, trial["id"])
        write_bytes(follow_logs(places, ended, partial(threading.Event().wait, FOLLOW_S)))


def reading(part: Callable[..., LogPart]) -> Read:
    """The reader of a log. `part`: a client's method that lacks only `offset` and `limit`.

    The reader returns an empty part while the file does not exist.
    """
    from nni_manager.client.manager_client import LogPart

    def read(offset: int) -> LogPart:
        try:
            return part(offset=offset, limit=max(PART, -offset))
        except NotFound:
            return LogPart(data=b"", offset=max(offset, 0), size=0)

    return read


def follow_logs(
    places: Sequence[tuple[Read, int]], ended: Callable[[], bool], pause: Callable[[], object]
) -> Iterator[bytes]:
    """The text added to logs, read in turn, each from its offset, until a round finds nothing new although `ended` was
    true before it."""
    offsets = [offset for _, offset in places]
    while True:
        was_over, is_new = ended(), False
        for number, (read, _) in enumerate(places):
            part = read(offsets[number])
            offsets[number] = part.end
            is_new |= bool(part.data)
            yield part.data
        if was_over and not is_new:
            return
        if not is_new:
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


#: Bytes that control a terminal, except line breaks and tabs; in UTF-8, those above 127 follow C2.
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\A[\x80-\x9f]|\xc2\Z")


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def write_bytes(parts: Iterator[bytes]) -> None:
    """Writes bytes to standard output unchanged; on a terminal, control codes in the trial's output are made
    visible."""
    sys.stdout.flush()
    is_safe = not is_terminal()
    for part in parts:
        sys.stdout.buffer.write(part if is_safe else _CONTROLS.sub(_shown, part))
        sys.stdout.buffer.flush()


def _shown(found: re.Match[bytes]) -> bytes:
    """A control code as `cat -v` shows it, such as ^[ for an escape."""
    code = found[0][-1]
    return b"^%c" % (code ^ 0x40) if code < 0x80 else b"?"


def _write_start(read: Read, tail: int | None, heading: bytes | None) -> int:
    """Writes the log so far, or its last `tail` lines, below `heading` if there is text; returns its end's offset."""
    offset = 0
    parts = _start(read, tail)
    for text, end in parts:
        if text and heading:
            write_bytes(iter([heading]))
            heading = None
        write_bytes(iter([text]))
        offset = end
    return offset


def _start(read: Read, tail: int | None) -> Iterator[tuple[bytes, int]]:
    """The parts of the log so far, or its last `tail` lines as one part, each with the offset of its end."""
    if tail:
        yield last_lines(read, tail)
        return
    offset = 0
    while (part := read(offset)).data:
        offset = part.end
        yield part.data, offset


def _has_ended(client: ManagerClient, id: str, trial_id: str) -> bool:
    return TrialStatus(client.trial(id, trial_id)["status"]).is_final


def _list_folders(client: ManagerClient, id: str) -> None:
    for trial in client.all_trials(id):
        click.echo(f"{trial['id']}  {trial['logPath']}")
