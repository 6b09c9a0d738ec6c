"""`nnictl log stdout` and `log stderr`: the logs of the manager and of an experiment's tuner.

One daemon serves many experiments, so what NNI's manager printed is in the experiment's own logs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.session import Connect, to_read
from nni_manager.cli.trial.log import Read, last_lines, reading, write_bytes

_FILES = {"stdout": "nnimanager.log", "stderr": "dispatcher.log"}
_MEANINGS = {
    "stdout": "Show what happened to an experiment: its nnimanager.log.",
    "stderr": "Show what tuner and assessor wrote: the experiment's dispatcher.log.",
}


def _command(stream: str) -> click.Command:
    @click.command(stream, help=_MEANINGS[stream])
    @to_read
    @selection.id_argument
    @click.option("--tail", "-T", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
    @click.option("--head", "-H", type=click.IntRange(1), metavar="N", help="Only the first N lines.")
    @click.option("--path", is_flag=True, help="Only where the file is, on the daemon's machine.")
    def show(connect: Connect, *, id: str | None, tail: int | None, head: int | None, path: bool) -> None:
        if tail and head:
            raise click.UsageError("give either --head or --tail, not both", click.get_current_context())
        client = connect()
        id_ = selection.choose(client, id)
        if path:
            click.echo(os.path.join(client.experiment(id_)["logPath"], "log", _FILES[stream]))
            return
        read = reading(partial(client.experiment_log, id_, _FILES[stream]))
        write_bytes(iter([last_lines(read, tail)[0]]) if tail else islice(_lines(read), head))

    return show


stdout, stderr = _command("stdout"), _command("stderr")


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
