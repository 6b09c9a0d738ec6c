"""Schedules of `python -m tests.chaos files`: six in the gate, two hundred in `make thorough`.

They run in a separate process, which drops root's right to write read-only files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.files.faults import Place
from tests.chaos.files.schedule import FileFault, Kind, Target, is_strict, schedule
from tests.thorough import besides

ROOT = Path(__file__).parents[3]
_GROUP = 10
_GROUPS = [f"{first}-{first + _GROUP - 1}" for first in range(1, 201, _GROUP)]


@pytest.mark.acceptance
@pytest.mark.timeout(480)
@pytest.mark.parametrize("seeds", ["1,26,50", "16,33,67", *besides(*_GROUPS)])
def test_no_result_is_lost_and_no_job_left_under_file_faults(seeds: str) -> None:
    command = [sys.executable, "-m", "tests.chaos", "files", "--seeds", seeds]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.unit
def test_seed_always_gives_the_same_schedule() -> None:
    assert [str(step) for step in schedule(7)] == [str(step) for step in schedule(7)] != [str(s) for s in schedule(8)]


@pytest.mark.unit
def test_schedules_have_every_target_and_kind_of_fault() -> None:
    faults = {fault for seed in range(1, 201) for step in schedule(seed) for fault in step.faults}
    assert {fault.target for fault in faults} == set(Target) and {fault.kind for fault in faults} == set(Kind)
    assert 60 < sum(is_strict(schedule(seed)) for seed in range(1, 201)) < 140


@pytest.mark.unit
@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.RENAME, Kind.READ_ONLY])
@pytest.mark.parametrize("target", [Target.INDEX_SET, Target.LOG, Target.SETTINGS])
def test_mended_fault_leaves_the_files_as_they_were(tmp_path: Path, target: Target, kind: Kind) -> None:
    place = _place(tmp_path)
    before = _content(place.data)
    mend = place.apply(FileFault(target, kind))
    assert _content(place.data) != before
    mend()
    assert _content(place.data) == before


@pytest.mark.unit
def test_restored_file_is_the_copy_that_was_taken(tmp_path: Path) -> None:
    place, fault = _place(tmp_path), FileFault(Target.IDENTITY, Kind.RESTORE)
    place.copy(fault)
    (place.data / "identity").write_text("later")
    place.apply(fault)()
    assert (place.data / "identity").read_text() == "mine"


def _place(folder: Path) -> Place:
    data = folder / "data"
    (data / "exp" / "log").mkdir(parents=True)
    (data / "exp" / "log" / "nnimanager.log").write_text("started")
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "settings.yml"):
        (data / name).write_text(name)
    (data / "identity").write_text("mine")
    return Place(data, "exp", folder / "aside")


def _content(data: Path) -> dict[str, tuple[int, str]]:
    return {str(path): (path.stat().st_mode, path.read_text() if path.is_file() else "") for path in data.rglob("*")}
