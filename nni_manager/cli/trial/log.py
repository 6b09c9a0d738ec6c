"""`nnictl log`: logs of trials, experiments, manager and tuner; `nnictl trial download`."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.selection import choose_trial, trial_help
from nni_manager.cli.output import echo
from nni_manager.cli.session import Connect, to_read
from nni_manager.cli.trial.commands import trial_option
from nni_manager.domain.errors import NniManagerError, NotFound
from nni_manager.domain.trial_status import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import LogPart, ManagerClient


#: Bytes of a log per request.
PART = 1 << 20
#: Seconds between reads of a followed log: no event reports added text.
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
@click.option("--stdout", "name", flag_value="stdout", help="Only standard output.")
@click.option("--stderr", "name", flag_value="stderr", help="Only standard error.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
@click.option("--follow", is_flag=True, help="Continue until the trial ends.")
def log_trial(
    connect: Connect, *, id: str | None, trial_id: str | None, name: str | None, tail: int | None, follow: bool
) -> None:
    """Show a trial's stdout and stderr, or list trial folders."""
    client, id_ = selection.reach(connect, id)
    if trial_id is None:
        for trial in client.all_trials(id_):
            echo(f"{trial['id']}  {trial['logPath']}")
        return
    trial = choose_trial(client, id_, trial_id)
    if name is None:
        echo(trial["logPath"])
    names = [name] if name else ["trial.log", "stdout", "stderr"]
    places = []
    for each in names:
        read = reading(partial(client.trial_log, id_, trial["id"], each))
        offset = _write_start(read, tail, heading=None if name or each != "stderr" else b"stderr:\n")
        places.append((read, offset))
    if follow:
        write_bytes(
            follow_logs(
                places,
                ended=lambda: TrialStatus(client.trial(id_, trial["id"])["status"]).is_final,
                pause=partial(threading.Event().wait, FOLLOW_S),
            )
        )


def reading(part: Callable[..., LogPart]) -> Read:
    """The reader of a log. `part`: a client's method that takes `offset` and `limit`.

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
    """The text added to logs, which are read in turn, each from its offset.

    Ends after a round without new text that began when `ended` was true.
    """
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
    """Write bytes to standard output unchanged; on a terminal, make control codes visible."""
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
    """Write the log so far, or its last `tail` lines, below `heading` if there is text; return the end's offset."""
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


#: One daemon serves many experiments, so the output of NNI's manager is in the experiment's own logs.
_OF_EXPERIMENT = {
    "stdout": ("nnimanager.log", "Show the log of an experiment (nnimanager.log)."),
    "stderr": ("dispatcher.log", "Show the output of tuner and assessor (dispatcher.log)."),
}


def _add_log_of_experiment(stream: str, file: str, meaning: str) -> None:
    @log.command(stream, help=meaning)
    @to_read
    @selection.id_argument
    @click.option("--tail", "-T", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
    @click.option("--head", "-H", type=click.IntRange(1), metavar="N", help="Only the first N lines.")
    @click.option("--path", is_flag=True, help="Print only the file's path on the daemon's machine.")
    def show(connect: Connect, *, id: str | None, tail: int | None, head: int | None, path: bool) -> None:
        if tail and head:
            raise click.UsageError("give either --head or --tail, not both", click.get_current_context())
        client, id_ = selection.reach(connect, id)
        if path:
            echo(os.path.join(client.experiment(id_)["logPath"], "log", file))
            return
        read = reading(partial(client.experiment_log, id_, file))
        write_bytes(iter([last_lines(read, tail)[0]]) if tail else islice(_lines(read), head))


for _stream, _told in _OF_EXPERIMENT.items():
    _add_log_of_experiment(_stream, *_told)


def _lines(read: Read) -> Iterator[bytes]:
    """The lines of a log, up to the file's size when its last part is read."""
    offset, rest = 0, b""
    while data := (part := read(offset)).data:
        offset = part.end
        *whole, rest = (rest + data).splitlines(keepends=True)
        yield from whole
        if rest.endswith(b"\n"):
            yield rest
            rest = b""
    if rest:
        yield rest


@click.command()
@to_read
@selection.id_argument
@trial_option
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Which attempt. Default: the latest.")
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Target folder, created if missing. Default: a folder with the trial's id.",
)
def download(connect: Connect, *, id: str | None, trial_id: str, attempt: int | None, folder: Path | None) -> None:
    """Download a trial's folder and checkpoint.

    It works on any platform that provides files.
    """
    client, id_ = selection.reach(connect, id)
    found = choose_trial(client, id_, trial_id)
    target = folder or Path(found["id"])
    listed = client.trial_files(id_, found["id"], attempt)
    brought, missing = _bring_all(client, id_, found["id"], listed, target)
    echo(f"Downloaded {brought} files of attempt {listed['attempt']} of trial {found['id']} to {target}.")
    if listed["why"]:
        missing.append(f"files on other machines: {listed['why']}")
    if missing:
        raise click.ClickException("; ".join(["not downloaded", *missing]))


def _bring_all(
    client: ManagerClient, id: str, trial_id: str, listed: dict[str, Any], target: Path
) -> tuple[int, list[str]]:
    """The number of downloaded files, and the others with reasons."""
    brought, missing = 0, []
    for file in listed["files"]:
        try:
            _bring(client, id, trial_id, file["name"], listed["attempt"], _below(target, file["name"]))
            brought += 1
        except NotFound:
            if file["place"] == "here":  # a service may name logs that do not exist
                missing.append(f"{file['name']}: it was removed in the meantime")
        except (NniManagerError, OSError) as error:
            missing.append(f"{file['name']}: {error}")
    return brought, missing


def _bring(client: ManagerClient, id: str, trial_id: str, name: str, attempt: int, path: Path) -> None:
    """Write a temporary file, then move it into place, so that an incomplete file never looks complete."""
    part = client.trial_file(id, trial_id, name, attempt=attempt, offset=0, limit=PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    draft.unlink(missing_ok=True)  # of an interrupted download, or a link of another user
    with draft.open("xb") as file:
        while part.data:
            file.write(part.data)
            part = client.trial_file(id, trial_id, name, attempt=attempt, offset=part.end, limit=PART)
    draft.replace(path)


def _below(target: Path, name: str) -> Path:
    """The path of a file. Raises OSError if its name, which comes from another machine, leaves the folder."""
    if name.startswith("/") or ".." in name.split("/"):
        raise OSError("its name points outside the folder")
    return target / name
