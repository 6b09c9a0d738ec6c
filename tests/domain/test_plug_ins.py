"""Packages that bring what is ours by name are found, also those that come while the process runs."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from nni_manager.domain.plug_ins import plug_ins

pytestmark = pytest.mark.unit

GROUP = "nni_manager.tested"


def install(folder: Path, name: str) -> None:
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:PLUG_IN\n")


def test_what_is_installed_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "bees")
    assert [point.value for point in plug_ins(GROUP)] == ["bees:PLUG_IN"]
    install(tmp_path, "ants")
    assert {point.name for point in plug_ins(GROUP)} == {"ants", "bees"}
    (tmp_path / "bees-1.0.dist-info").rename(tmp_path / "gone")
    assert [point.name for point in plug_ins(GROUP)] == ["ants"]


def test_installed_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    now = SimpleNamespace(monotonic=lambda: 60_000.0)
    monkeypatch.setattr("nni_manager.domain.plug_ins.time", now)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [read.append(group)] and ())
    for _ in range(3):
        assert plug_ins("nni_manager.read_once") == ()
    assert read == ["nni_manager.read_once"]
    now.monotonic = lambda: 60_060.0
    plug_ins("nni_manager.read_once")
    assert len(read) == 2
