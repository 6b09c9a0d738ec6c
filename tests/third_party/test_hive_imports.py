"""A third party's adapter imports no more of nni_manager than our own adapters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

_PACKAGE = Path(__file__).parent / "nni-hive" / "nni_hive"
_ALLOWED = (
    "nni_manager.domain",
    "nni_manager.platform_kit",
    "nni_manager.web_services",
    "trial_runner.protocol",
    "nni_hive",
)
_SERVER = Path(__file__).parent / "nni-hive" / "tests" / "hive_server"


def _imported(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _of_ours(folder: Path) -> list[str]:
    return [name for name in _imported(folder) if name.startswith(("nni_manager", "trial_runner", "nni_hive", "tests"))]


def test_plug_in_imports_only_domain_and_kit() -> None:
    found = _of_ours(_PACKAGE)
    assert found
    assert [name for name in found if not name.startswith(_ALLOWED)] == []


def test_server_shares_no_code_with_the_plug_in() -> None:
    assert _of_ours(_SERVER) == []
