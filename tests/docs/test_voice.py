"""Text reads like plain technical English: few awkward phrases, and short test names."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.unit

#: Constructions that usually need a rewrite: "is no X", "anew", "of which".
AWKWARD = re.compile(r"\b(is|are) no\b|\banew\b|\bso many\b|\bwhoever\b|\bof which\b|\bin words\b")
#: Maximum number of lines that match; some uses are correct, such as "there are no trials".
MOST_LINES = 60
#: Maximum length of a test name.
MOST_CHARACTERS = 60
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
#: Tokens of Python that contain text for readers.
_TEXT = {"COMMENT", "STRING", "FSTRING_MIDDLE"}


def tracked() -> Iterator[tuple[str, str]]:
    """(path, content) of each tracked text file except this one. Skips the test outside a git checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: the tracked files are unknown")
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in filter(None, found.split("\0")):
        content = (ROOT / path).read_bytes() if (ROOT / path).is_file() else b"\0"
        if b"\0" not in content and ROOT / path != Path(__file__):
            yield path, content.decode(errors="replace")


def lines_of_text(path: str, text: str) -> set[int]:
    """Numbers of the lines that contain text for readers: in Python, comments and strings."""
    if not path.endswith(".py"):
        return set(range(1, text.count("\n") + 2))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = [(one.start[0], one.end[0]) for one in tokens if tokenize.tok_name[one.type] in _TEXT]
    return {number for first, last in spans for number in range(first, last + 1)}


def awkward_lines() -> Iterator[str]:
    for path, text in tracked():
        matching = [(number, line) for number, line in enumerate(text.splitlines(), 1) if AWKWARD.search(line)]
        if matching:
            readable = lines_of_text(path, text)
            yield from (f"{path}:{number}: {line.strip()}" for number, line in matching if number in readable)


def test_awkward_phrases_are_rare() -> None:
    found = list(awkward_lines())
    assert len(found) <= MOST_LINES, "\n".join([f"{len(found)} lines, at most {MOST_LINES}; rewrite some:", *found])


def test_python_code_is_not_text() -> None:
    text = 'for one in words:\n    pass  # in words\nNAME = f"{one in words} is no"\n'
    assert 1 not in lines_of_text("a.py", text) and {2, 3} <= lines_of_text("a.py", text)
    assert lines_of_text("a.md", "in words\n") >= {1}


def test_names_of_tests_are_short() -> None:
    files = [(path, text) for path, text in tracked() if path.endswith(".py")]
    long = [f"{path}: {name}" for path, text in files for name in _TEST.findall(text) if len(name) > MOST_CHARACTERS]
    assert long == [], "\n".join([f"at most {MOST_CHARACTERS} characters; shorten:", *long])
