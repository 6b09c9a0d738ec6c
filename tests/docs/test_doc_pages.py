"""The commands of each page of `docs/`, run step by step, succeed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
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
def test_commands_of_a_page_run(page: Path, line: CommandLine) -> None:
    pages.write_files(page, line.folder)
    programs = Path(sys.executable).parent
    (listener,) = [
        listener for listener in line.daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "service"
    ]
    environment = line.environment | {
        "PATH": f"{programs}:{line.environment['PATH']}",
        "NNI_MANAGER_TOKEN": "",
        "MANAGER": listener["address"],
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", pages.script(page)],
        cwd=line.folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.unit
def test_pages_with_commands_are_found() -> None:
    assert {"trials", "search-space", "algorithms", "rest", "operations"} <= {page.stem for page in RUN}


@pytest.mark.unit
def test_unit_starts_the_daemon() -> None:
    unit = next(block for block in pages.blocks(pages.DOCS / "operations.md") if block.language == "ini")
    (start,) = [line for line in unit.text.splitlines() if line.startswith("ExecStart=")]
    (words,) = _ours(start.removeprefix("ExecStart="))
    _parse(words)
    assert "KillMode=process" in unit.text, "else systemd ends keeper and trials"


@pytest.mark.unit
def test_every_quoted_command_exists() -> None:
    """Every `nnictl …` and `nni-manager …` of a page is understood; what would happen then does not."""
    tried = 0
    for page in [pages.ROOT / "README.md", *pages.PAGES]:
        for block in pages.blocks(page):
            if block.is_commands:
                for words in _ours(block.text):
                    _parse(words)
                    tried += 1
    assert tried > 30


#: A command may follow these.
_BEFORE = ("", "&&", "||", "|", ";", "until", "while", "if", "then", "do", "!")
#: What a shell does with its output, and what comes after it.
_AFTER = ("&&", "||", "|", ";", "&", ">", "2>", "<")


def _ours(text: str) -> Iterator[list[str]]:
    """Command lines of ours, without what stands around them."""
    for line in text.replace("\\\n", " ").replace("$(", " ; ").splitlines():
        words = shlex.split(line, comments=True)
        for number, word in enumerate(words):
            before = words[number - 1] if number else ""
            if Path(word).name in ("nnictl", "nni-manager") and (before in _BEFORE or "=" in before):
                rest = list(takewhile(lambda word: word not in _AFTER, words[number + 1 :]))
                yield [Path(word).name, *rest]


def _parse(words: list[str]) -> None:
    command: click.Command = main.nnictl if words[0] == "nnictl" else main.nni_manager
    arguments = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, words
        command, arguments = found, arguments[1:]
    with click.Context(command, info_name=words[0]) as context:
        command.make_parser(context).parse_args(arguments)  # values are not looked at
