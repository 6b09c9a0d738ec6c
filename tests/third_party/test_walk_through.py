"""The code on the page about adding a platform equals the third party's package, line for line."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

_HERE = Path(__file__).parent
_BLOCK = re.compile(r"^ *```(?:python|toml)\n *# (\S+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def test_every_block_is_in_the_file_that_it_names() -> None:
    text = (_HERE.parents[1] / "docs" / "contributing" / "platform.md").read_text()
    blocks = _BLOCK.findall(text)
    assert len(blocks) == text.count("```") // 2 == 7
    for name, block in blocks:
        assert _plain(block) in _plain((_HERE / name).read_text()), name


def _plain(text: str) -> str:
    """A block without its indentation."""
    return "\n".join(line.strip() for line in textwrap.dedent(text).strip().splitlines())
