"""Messages that the troubleshooting page quotes are the ones that the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"


def quotes() -> Iterator[str]:
    """What the first column quotes: texts in double quotes, and in backticks those with a gap."""
    for line in PAGE.read_text().splitlines():
        if line.startswith("| "):
            seen = line.split(" | ")[0]
            yield from re.findall('"([^"]+)"', seen)
            yield from (text for text in re.findall("`([^`]+)`", seen) if "…" in text)


def said_in(path: Path) -> Iterator[str]:
    """Texts of a module that are not docstrings; values in them are gaps."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_every_quoted_message_is_in_the_code() -> None:
    sources = [path for part in ("nni_manager", "trial_runner") for path in (ROOT / part).rglob("*.py")]
    said = "\n".join(text for path in sources for text in said_in(path))
    found = list(quotes())
    assert len(found) >= 2
    for quote in found:
        for piece in filter(None, (piece.strip(" :") for piece in quote.split("…"))):
            assert piece in said, f"{quote}: the code does not say {piece!r}"
