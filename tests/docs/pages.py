"""The pages of `docs/` as what can be tried: files that the reader makes, and commands that the reader types.

A block of code is a file when the line before it names one: "`search/trial.sh`:". Blocks of `sh` are commands. What
cannot be run here says so in a comment of the page right before the block: ``<!-- not run: needs root -->``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

_BLOCK = re.compile(r"(?:^(?P<before>[^\n]+)\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:^|\s)`(?P<name>[\w./-]+)`:$")
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>.+) -->$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    text: str
    #: Name of the file that it is; empty: none.
    file: str
    #: Why its commands are not run; empty: they are.
    not_run: str

    @property
    def is_commands(self) -> bool:
        return self.language == "sh" and not self.file


def blocks(page: Path) -> list[Block]:
    return [_block(found) for found in _BLOCK.finditer(page.read_text())]


def _block(found: re.Match[str]) -> Block:
    before = found["before"] or ""
    file, not_run = _FILE.search(before), _NOT_RUN.search(before)
    return Block(
        language=found["language"],
        text=found["text"],
        file=file["name"] if file else "",
        not_run=not_run["why"] if not_run else "",
    )


def script(page: Path) -> str:
    """All commands that are run, in order, in one shell."""
    return "".join(block.text for block in blocks(page) if block.is_commands and not block.not_run)


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def table_rows(page: Path) -> list[list[str]]:
    """Cells of all tables, without what marks them as code."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
