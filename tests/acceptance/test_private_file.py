"""A folder without its private file opens, names the missing values, and continues when they are set."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.store import private
from tests.acceptance.command_line import CommandLine, command_line

pytestmark = pytest.mark.acceptance

SECRET, VARIABLE = "t0ken-of-the-wasps", "value-of-the-wasps"


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def lacking(state: dict[str, Any]) -> bool:
    return bool(state["hold"] and state["hold"]["code"] == "PRIVATE_MISSING")


def outcome(nnictl: CommandLine, id_: str) -> list[str]:
    """Final results of its succeeded trials."""
    trials = json.loads(nnictl.good("trial", "ls", id_, "--json"))
    return [trial["finalValue"] for trial in trials if trial["status"] == "SUCCEEDED"]


def test_shared_folder_holds_no_secret(nnictl: CommandLine) -> None:
    nnictl.environment |= {"WASP_TOKEN": SECRET, "WASP": VARIABLE, "MANAGER_PATH": "/bin"}
    section = {"platform": "scripted", "token": "${WASP_TOKEN}", "trials": [{"duration": 0.1, "result": 1}]}
    id_ = nnictl.create(trainingService=section, maxTrialNumber=1)
    nnictl.daemon.wait(id_, "DONE")
    nnictl.good("stop", id_)
    folder = nnictl.data / id_
    file = folder / private.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    others = [path for path in folder.rglob("*") if path.is_file() and path != file]
    texts = {path: path.read_bytes() for path in others}
    assert [path for path, text in texts.items() if SECRET.encode() in text or VARIABLE.encode() in text] == []
    kept = private.load(file)
    assert kept.secrets == {"${WASP_TOKEN}": SECRET} and kept.environment is not None
    assert kept.environment["WASP"] == VARIABLE


def test_missing_private_file_holds_until_values_are_given(nnictl: CommandLine) -> None:
    nnictl.environment |= {"WASP": VARIABLE}
    command = '[ "$WASP" = "' + VARIABLE + '" ] && echo \'{"type": "final", "value": 1}\' >> "$NNI_OUTBOX"'
    id_ = nnictl.create(trialCommand=command, maxTrialNumber=1)
    nnictl.daemon.wait(id_, "DONE")
    nnictl.good("stop", id_)
    (nnictl.data / id_ / private.FILE).unlink()
    nnictl.good("resume", id_)
    nnictl.good("update", "trialnum", id_, "--value", "2")
    held = nnictl.daemon.wait_for(id_, lacking)
    assert "private.sqlite does not contain its creator's environment" in held["hold"]["sentence"]
    assert f"`nnictl update credentials {id_}`" in held["hold"]["sentence"]
    nnictl.good("resume", id_)
    assert lacking(nnictl.daemon.status(id_)), "a resume brings nothing back"
    assert nnictl.daemon.status(id_)["counts"] == {"SUCCEEDED": 1}, "nothing was started"
    assert "has an environment again" in nnictl.good("update", "credentials", id_)
    nnictl.daemon.wait(id_, "DONE")
    assert outcome(nnictl, id_) == [1, 1]
    nnictl.good("stop", id_)
    code, line = nnictl.bad("update", "credentials", id_)
    assert code == 2 and "no credentials to update" in line
    (nnictl.data / id_ / private.FILE).unlink()
    nnictl.good("update", "credentials", id_)  # of a stopped experiment
    kept = private.load(nnictl.data / id_ / private.FILE)
    assert kept.environment is not None and kept.environment["WASP"] == VARIABLE


def test_copy_without_private_file_names_missing_secrets(nnictl: CommandLine, tmp_path: Path) -> None:
    nnictl.environment["WASP_TOKEN"] = SECRET
    section = {"platform": "scripted", "token": "${WASP_TOKEN}", "trials": [{"duration": 0.1, "result": 1}]}
    id_ = nnictl.create(trainingService=section, maxTrialNumber=1)
    nnictl.daemon.wait(id_, "DONE")
    nnictl.good("stop", id_)
    shutil.copytree(nnictl.data / id_, tmp_path / "sent" / id_, ignore=lambda *_: {private.FILE})
    nnictl.good("experiment", "delete", "--yes", id_)
    nnictl.good("view", id_, "--experiment_dir", tmp_path / "sent")
    assert outcome(nnictl, id_) == [1]
    nnictl.good("stop", id_)
    nnictl.environment.pop("WASP_TOKEN")
    nnictl.good("resume", id_)
    held = nnictl.daemon.wait_for(id_, lacking)
    assert "its creator's environment, ${WASP_TOKEN}" in held["hold"]["sentence"]
    nnictl.environment["WASP_TOKEN"] = SECRET
    nnictl.good("update", "credentials", id_)
    nnictl.daemon.wait_for(id_, lambda state: not state["hold"])


def test_show_reports_kept_variables_and_the_config_limits_them(nnictl: CommandLine) -> None:
    nnictl.environment |= {"WASP": VARIABLE, "OTHER": "x"}
    command = 'test -z "$OTHER" && test "$WASP" && echo \'{"type": "final", "value": 1}\' >> "$NNI_OUTBOX"'
    path = nnictl.config(trialCommand=command, maxTrialNumber=1, callerEnvironment=["PATH", "WASP", "NOT_THERE"])
    out = nnictl.good("create", "--config", path)
    id_ = out.split()[1]
    nnictl.daemon.wait(id_, "DONE")
    assert "2 variables of its creator" in nnictl.good("experiment", "show", id_)
    assert outcome(nnictl, id_) == [1]
    kept = private.load(nnictl.data / id_ / private.FILE)
    assert kept.environment is not None and set(kept.environment) == {"PATH", "WASP"}
    assert nnictl.daemon.status(id_)["variables"] == 2
