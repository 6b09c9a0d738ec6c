"""A data directory that was copied while its daemon and trials ran."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.client.address import find
from tests.acceptance.command_line import command_line
from tests.live_daemon import Daemon

pytestmark = pytest.mark.acceptance


@pytest.fixture
def copy(daemon: Daemon, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is not started yet; the test copies its data directory."""
    (tmp_path / "second").mkdir()
    copy = Daemon(tmp_path / "second" / "data")
    yield copy
    copy.terminate()


def test_actions_in_a_copy_do_not_change_the_original(daemon: Daemon, copy: Daemon, code: Path, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    id_ = daemon.create(_config(enough), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    shutil.copytree(daemon.data, copy.data, ignore=shutil.ignore_patterns("*.sock"))
    assert find(daemon.data) is not None and find(copy.data) is None, (
        "a command would do to one what is said of the other"
    )
    copy.start()
    copy.call("POST", f"/experiments/{id_}/resume")
    copy.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    copy.call("POST", f"/experiments/{id_}/stop")
    copy.wait(id_, "STOPPED")
    copy.call("DELETE", f"/experiments/{id_}")
    enough.touch()
    daemon.wait(id_, "DONE")
    assert [(trial["status"], trial["attempt"]) for trial in daemon.trials(id_)] == [("SUCCEEDED", 1)] * 2


def test_copy_that_would_use_the_original_keeper_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    data = tmp_path / "second"
    (daemon.data / "keeper").mkdir(exist_ok=True)
    shutil.copytree(daemon.data, data, ignore=shutil.ignore_patterns("*.sock", "keeper"))
    (data / "keeper").symlink_to(daemon.data / "keeper")
    with command_line(tmp_path) as line:
        done = line.run("serve", "--no-listen", "--data-dir", data, program="nni-manager")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert f"nni-manager: {data} is a copy" in last and "remove it, and start again" in last
    assert (daemon.data / "keeper").is_dir()


def _config(enough: Path) -> dict[str, Any]:
    """Trials that end when the file exists."""
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"while [ ! -e {enough} ]; do sleep 0.1; done; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
