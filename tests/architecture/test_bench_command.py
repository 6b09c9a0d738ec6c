"""`make bench` on a machine that lacks a program, or where a figure fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nni3
from tests.benchmarks import __main__ as bench
from tests.benchmarks.table import Table

pytestmark = pytest.mark.unit


def test_figures_without_their_program_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_nni() -> Path:
        raise RuntimeError("no PyPI")

    monkeypatch.setattr(nni3, "interpreter", no_nni)
    monkeypatch.setattr(bench, "CHROMIUM", str(tmp_path / "chromium"))
    found = bench.left_out(["serve", "sdk", "page"])
    assert found.keys() == {"sdk", "page"}
    assert "make nni3" in found["sdk"] and "make chromium" in found["page"]


def test_failing_figure_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(folder: Path, table: Table) -> None:
        raise OSError("no room")

    measured = []
    monkeypatch.setattr(bench, "FIGURES", {"a": fails, "b": lambda folder, table: measured.append(folder)})
    assert bench.measure(["a", "b"], tmp_path, Table()) == {"a": "OSError: no room"}
    assert measured == [tmp_path / "b"]
