"""Command lines with separate folders that share one daemon; each stops its own experiments at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.command_line import CommandLine, command_line


class LineOfMany(CommandLine):
    """It works in `folder`; data, daemon and home are those of `server`."""

    def __init__(self, folder: Path, server: CommandLine) -> None:
        super().__init__(folder, server.runtime)
        self.data = server.data
        self.environment = dict(server.environment)

    def end(self) -> None:
        """Stop the experiments; the daemon stays for the next command line."""
        self.daemon.call("POST", "/experiments/stop")

    def experiments(self) -> set[str]:
        """Ids of all experiments of the daemon, including those of other command lines."""
        return {one["id"] for one in self.daemon.call("GET", "/experiments")["experiments"]}


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[CommandLine]:
    """A daemon that serves until the end."""
    with command_line(folder) as server:
        server.serve(*arguments)
        yield server


@contextmanager
def line_of(folder: Path, server: CommandLine) -> Iterator[LineOfMany]:
    line = LineOfMany(folder, server)
    try:
        yield line
    finally:
        line.end()
