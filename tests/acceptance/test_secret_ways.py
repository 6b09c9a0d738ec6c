"""A secret from the shell to the platform: read at creation, stored separately, replaced, never shown."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine
from tests.acceptance.lines_of_one_daemon import line_of, serving

pytestmark = [pytest.mark.acceptance, pytest.mark.group("secret_ways")]

WRONG, RIGHT, NEXT = "wrong-t0ken-of-the-bees", "right-t0ken-of-the-bees", "next-t0ken-of-the-bees"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with serving(tmp_path_factory.mktemp("server"), "--host", "127.0.0.1", "--port", "0") as server:
        yield server


@pytest.fixture
def nnictl(tmp_path: Path, server: CommandLine) -> Iterator[CommandLine]:
    with line_of(tmp_path, server) as line:
        yield line


def section(**fields: object) -> dict[str, object]:
    """A section for a cluster that accepts only one token."""
    accepted = hashlib.sha256(RIGHT.encode()).hexdigest()
    return {"platform": "scripted", "token": "${BEE_TOKEN}", "acceptedToken": accepted, **fields}


def stored(nnictl: CommandLine, id_: str) -> dict[str, str]:
    """Secrets in the private file, which is the only place that shows them."""
    with closing(sqlite3.connect(f"file:{nnictl.data}/{id_}/private.sqlite?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT reference, value FROM secrets"))


def everything_shown(nnictl: CommandLine, id_: str) -> str:
    """Texts of API answers and logs."""
    with nnictl.daemon.client() as client:
        paths = (f"/api/v1/experiments/{id_}", "/api/v1/experiments", f"/experiments/{id_}/api/v1/nni/experiment")
        answers = [client.get(path).raise_for_status().text for path in paths]
    logs = [path.read_text(errors="replace") for path in (nnictl.data / id_ / "log").rglob("*") if path.is_file()]
    return "".join([*answers, *logs, (nnictl.data.parent / "daemon.log").read_text()])


def test_unset_variable_is_named(nnictl: CommandLine) -> None:
    path = nnictl.config(trainingService=section())
    code, line = nnictl.bad("create", "--config", path)
    words = "trainingService.token: refers to the variable BEE_TOKEN, which is not set"
    assert code == 2 and words in line and line.startswith(f"{path}:")
    assert nnictl.bad("config", "check", path) == (2, line)


def test_wrong_secret_is_replaced_while_the_experiment_runs(nnictl: CommandLine) -> None:
    nnictl.environment["BEE_TOKEN"] = WRONG
    trials = [{"duration": 0.1, "result": 1}]
    id_ = nnictl.create(trainingService=section(trials=trials), maxTrialNumber=2)
    held = nnictl.daemon.wait_for(id_, lambda state: "refuses the token" in (state["hold"] or {}).get("sentence", ""))
    assert held["id"] == id_ and nnictl.daemon.status(id_)["references"] == ["${BEE_TOKEN}"]
    assert stored(nnictl, id_) == {"${BEE_TOKEN}": WRONG}

    nnictl.environment.pop("BEE_TOKEN")
    code, line = nnictl.bad("update", "credentials", id_)
    assert code == 2 and "the variable BEE_TOKEN, which is not set" in line
    nnictl.environment["BEE_TOKEN"] = RIGHT
    assert RIGHT not in nnictl.good("update", "credentials", id_)
    nnictl.daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 2)
    assert stored(nnictl, id_) == {"${BEE_TOKEN}": RIGHT}
    shown = everything_shown(nnictl, id_) + nnictl.good("config", "show", id_)
    assert "${BEE_TOKEN}" in shown and WRONG not in shown and RIGHT not in shown

    nnictl.good("stop", id_)
    nnictl.environment["BEE_TOKEN"] = NEXT
    nnictl.good("resume", id_)
    assert stored(nnictl, id_) == {"${BEE_TOKEN}": NEXT}
    nnictl.environment.pop("BEE_TOKEN")
    nnictl.good("stop", id_)
    nnictl.good("resume", id_)
    assert stored(nnictl, id_) == {"${BEE_TOKEN}": NEXT}, "what cannot be looked up stays"


def test_literal_secret_is_masked_everywhere(nnictl: CommandLine) -> None:
    id_ = nnictl.create(trainingService=section(token=RIGHT, trials=[{"duration": 0.1, "result": 1}]), maxTrialNumber=1)
    nnictl.daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 1)
    assert stored(nnictl, id_) == {"stored:scripted.token": RIGHT}
    assert RIGHT not in everything_shown(nnictl, id_)
    shown = json.loads(nnictl.good("config", "show", id_))
    assert shown["trainingService"]["token"] == "******"
    code, line = nnictl.bad("update", "credentials", id_)
    assert code == 2 and "refers to no variable and no file" in line


def test_remote_manager_gets_locally_resolved_secrets(nnictl: CommandLine, tmp_path: Path) -> None:
    daemon = nnictl.daemon
    listeners = daemon.call("GET", "/daemon")["listeners"]
    url = next(listener["address"] for listener in listeners if listener["kind"] == "service")
    code = tmp_path / "code"
    code.mkdir()
    (code / "secret").write_text(RIGHT + "\n")
    path = nnictl.config(
        trainingService=section(token=f"file:{code}/secret", trials=[{"duration": 0.1, "result": 1}]),
        trialCodeDirectory=str(code),
        maxTrialNumber=1,
    )
    out = nnictl.good("create", "--config", path, "--manager", url)
    (code / "secret").unlink()
    id_ = out.split()[1]
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 1)
    assert stored(nnictl, id_) == {f"file:{os.path.realpath(code)}/secret": RIGHT}
