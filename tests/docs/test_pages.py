"""Whoever follows a page of `docs/` step by step gets where it leads."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nni_manager.cli import main
from tests.acceptance.command_line import CommandLine, command_line
from tests.docs import pages

#: Most are for readers alone.
RUN = [page for page in pages.PAGES if pages.script(page)]


@pytest.fixture
def line(tmp_path: Path) -> Iterator[CommandLine]:
    """With a daemon that serves."""
    with command_line(tmp_path) as line:
        line.serve("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
        yield line


@pytest.mark.acceptance
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_commands_run(page: Path, line: CommandLine) -> None:
    pages.write_files(page, line.folder)
    programs = Path(sys.executable).parent
    (door,) = [door for door in line.daemon.call("GET", "/daemon")["doors"] if door["kind"] == "service"]
    environment = line.environment | {
        "PATH": f"{programs}:{line.environment['PATH']}",
        "NNI_MANAGER_TOKEN": "",
        "MANAGER": door["address"],
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", pages.script(page)], cwd=line.folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.unit
def test_pages_are_run() -> None:
    assert {"trials", "search-space", "algorithms", "rest", "operations"} <= {page.stem for page in RUN}


@pytest.mark.unit
def test_commands_that_are_not_run_are_commands_of_ours() -> None:
    """Every `nnictl …` and `nni-manager …` of a page is understood; what would happen then does not."""
    tried = 0
    for page in [pages.ROOT / "README.md", *pages.PAGES]:
        for block in pages.blocks(page):
            if block.is_commands:
                for words in _ours(block.text):
                    _parse(words)
                    tried += 1
    assert tried > 30


def _ours(text: str) -> Iterator[list[str]]:
    """Command lines of ours, up to what a shell would do with their output."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while any(word in words for word in ("nnictl", "nni-manager")):
            start = next(number for number, word in enumerate(words) if word in ("nnictl", "nni-manager"))
            rest = words[start + 1 :]
            end = next((number for number, word in enumerate(rest) if word in ("&&", "|", ">", "||", "&", ";")), None)
            yield [words[start], *(rest if end is None else rest[:end])]
            words = [] if end is None else rest[end:]


def _parse(words: list[str]) -> None:
    command: click.Command = main.nnictl if words[0] == "nnictl" else main.nni_manager
    arguments, parent = words[1:], None
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, words
        command, arguments = found, arguments[1:]
    with click.Context(command, info_name=words[0], parent=parent, resilient_parsing=True) as context:
        parser = command.make_parser(context)
        parser.parse_args(list(arguments))
