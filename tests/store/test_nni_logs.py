"""Links to logs."""

from pathlib import Path

import pytest

from nni_manager.store.nni import nni_format

pytestmark = pytest.mark.unit


def test_a_log_has_its_name_at_nnis_too_wherever_it_is_moved(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "nnimanager.log").write_text("what happened")
    for _ in range(2):
        nni_format.nni_log_name(folder / "nnimanager.log")
    moved = folder.rename(tmp_path / "moved")
    assert (moved / "nnictl_stdout.log").read_text() == "what happened"


def test_files_of_nni_stay(tmp_path: Path) -> None:
    (tmp_path / "nnictl_stderr.log").write_text("NNI's")
    nni_format.nni_log_name(tmp_path / "dispatcher.log")
    assert (tmp_path / "nnictl_stderr.log").read_text() == "NNI's"
