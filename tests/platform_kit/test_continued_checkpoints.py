"""The shell text by which a trial begins with the checkpoint of an earlier one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nni_manager.platform_kit.payload import copy_from

pytestmark = pytest.mark.unit


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of a trial that continues trial `aaaaa`."""
    folder = tmp_path / "it's b-checkpoint"
    folder.mkdir()
    return folder


def begin(own: Path, system: str = "/somewhere/b") -> subprocess.CompletedProcess[str]:
    variables = {"NNI_CHECKPOINT_DIR": str(own), "NNI_SYS_DIR": system, "PATH": "/usr/bin:/bin"}
    command = copy_from("aaaaa") + "echo begun"
    return subprocess.run(["sh", "-c", command], env=variables, capture_output=True, text=True, check=True)


def earlier(own: Path) -> Path:
    folder = own.parent / "aaaaa-checkpoint"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "model").write_text("weights")
    return folder


def test_trial_begins_with_a_copy(own: Path) -> None:
    source = earlier(own)
    done = begin(own)
    assert (done.stdout, done.stderr) == ("begun\n", "")
    assert [path.name for path in own.iterdir()] == ["deep"]
    (own / "deep" / "model").write_text("more")
    begin(own)
    assert (own / "deep" / "model").read_text() == "more", "what the trial saved itself stays"
    assert (source / "deep" / "model").read_text() == "weights"


def test_incomplete_copy_is_repeated(own: Path) -> None:
    earlier(own)
    (own / ".nni-copying").touch()
    (own / "deep").mkdir()
    (own / "deep" / "model").write_text("wei")
    begin(own)
    assert (own / "deep" / "model").read_text() == "weights"
    assert not (own / ".nni-copying").exists()


def test_missing_checkpoint_is_reported(own: Path) -> None:
    done = begin(own)
    assert done.stdout == "begun\n"
    assert "no checkpoint of trial aaaaa is here; this trial begins without" in done.stderr
    assert not list(own.iterdir())


def test_processes_that_do_not_report_copy_nothing(own: Path) -> None:
    earlier(own)
    begin(own, "/somewhere/b/replicas/worker-1")
    assert not list(own.iterdir())
