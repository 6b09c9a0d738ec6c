"""Ports of their own for experiments, on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from fake_manager import FakeManager, state

pytestmark = pytest.mark.unit

Run = Callable[..., Result]
ENDPOINT = {"port": 8888, "urlPrefix": "my/pre", "url": "http://127.0.0.1:8888/my/pre/"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yml"
    path.write_text("trialCommand: 'true'\n")
    return path


@pytest.mark.parametrize(
    ("words", "endpoint", "debug"),
    [
        ([], {"port": None, "urlPrefix": ""}, False),
        (["--port", "8080"], {"port": 8080, "urlPrefix": ""}, False),
        (["-p", "0", "-u", "/my/pre", "-d"], {"port": 0, "urlPrefix": "/my/pre"}, True),
        (["--url_prefix", "x", "--debug"], {"port": None, "urlPrefix": "x"}, True),
    ],
)
def test_create(nnictl: Run, manager: FakeManager, file: Path, words: list[str], endpoint: object, debug: bool) -> None:
    assert nnictl("create", "-c", str(file), *words).exit_code == 0
    ((_, _, caller),) = manager.calls
    assert (caller["endpoint"], caller["debug"]) == (endpoint, debug)


def test_port_variable_says_the_first_port(
    nnictl: Run, manager: FakeManager, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNI_MANAGER_PORT", "9000")
    assert nnictl("create", "-c", str(file)).exit_code == 0
    assert nnictl("create", "-c", str(file), "-p", "8888").exit_code == 0
    assert [caller["endpoint"] for _, _, caller in manager.calls] == [
        {"port": None, "urlPrefix": "", "firstPort": 9000},
        {"port": 8888, "urlPrefix": ""},
    ]
    monkeypatch.setenv("NNI_MANAGER_PORT", "90000")
    refused = nnictl("create", "-c", str(file))
    assert refused.exit_code == 2 and "NNI_MANAGER_PORT: must be a port from 0 to 65535" in refused.stderr


def test_create_prints_where_it_is(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.endpoint_of_new = ENDPOINT
    lines = nnictl("create", "-c", str(file), "-p", "8888", "-u", "my/pre").stdout.splitlines()
    assert lines[1] == "Page  http://127.0.0.1:8888/my/pre/"


def test_create_prints_the_page_on_the_service(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.listeners = [{"kind": "service", "address": "http://127.0.0.1:9000"}]
    assert "\nPage  http://127.0.0.1:9000/experiments/new00000\n" in nnictl("create", "-c", str(file)).stdout


@pytest.mark.parametrize(
    ("manager_url", "host"),
    [("http://vm:24300", "vm"), ("https://lab/nni/", "lab"), ("http://[fd00::7]:1", "[fd00::7]")],
)
def test_a_view_elsewhere_is_on_the_managers_host(
    nnictl: Run, manager: FakeManager, manager_url: str, host: str
) -> None:
    """The manager opens the port on all addresses and names its loopback address."""
    manager.add(state("abc", "STOPPED", endpoint=ENDPOINT), state("abd", endpoint={**ENDPOINT, "urlPrefix": ""}))
    elsewhere = ["--manager", manager_url]
    assert f"Page  http://{host}:8888/my/pre/\n" in nnictl("resume", "abc", *elsewhere).stdout
    assert nnictl("webui", "url", "abc", *elsewhere).stdout.splitlines()[0] == f"http://{host}:8888/my/pre/"
    assert nnictl("webui", "url", "abd", *elsewhere).stdout.splitlines()[0] == f"http://{host}:8888/"


@pytest.mark.parametrize("command", [["create", "-c", "x"], ["resume", "abc"], ["view", "abc"], ["stop"]])
@pytest.mark.parametrize("port", ["-1", "65536", "many"])
def test_invalid_port(nnictl: Run, manager: FakeManager, command: list[str], port: str) -> None:
    result = nnictl(*command, "--port", port)
    assert result.exit_code == 2 and "'--port'" in result.stderr and manager.calls == []


def test_resume(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED", endpoint=ENDPOINT))
    result = nnictl("resume", "ab", "-p", "8888", "-d")
    how = {"endpoint": {"port": 8888, "urlPrefix": ""}, "working_directory": None, "debug": True}
    assert manager.calls == [("resume", "abc", how)]
    assert "http://127.0.0.1:8888/my/pre/" in result.stdout


def test_view(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED", endpoint=ENDPOINT))
    lines = nnictl("view", "ab", "--port", "8888").stdout.splitlines()
    how = {"endpoint": {"port": 8888, "urlPrefix": ""}, "working_directory": None}
    assert manager.calls == [("view", "abc", how)]
    assert lines[0] == "Experiment abc (digits) is open for reading only; `nnictl stop abc` closes it."


@pytest.mark.parametrize("command", ["resume", "view"])
def test_a_folder_that_was_moved(nnictl: Run, manager: FakeManager, tmp_path: Path, monkeypatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    for given, expected in (("moved", str(tmp_path / "moved")), ("~/moved", os.path.expanduser("~/moved"))):
        manager.calls.clear()
        assert nnictl(command, "unknown1", "--experiment_dir", given).exit_code == 0
        ((verb, id_, how),) = manager.calls
        assert (verb, id_, how["working_directory"]) == (command, "unknown1", expected)


def test_stop_by_port(nnictl: Run, manager: FakeManager) -> None:
    manager.add(
        state("abc"), state("def", endpoint=ENDPOINT), state("ghi", "VIEWED", endpoint={**ENDPOINT, "port": 8889})
    )
    assert nnictl("stop", "--port", "8888").stdout == "Experiment def is stopped.\n"
    assert nnictl("stop", "gh", "-p", "8889").stdout == "Experiment ghi is closed.\n"
    assert manager.calls == [("stop", "def"), ("stop", "ghi")]


def test_stop_by_an_unknown_or_foreign_port(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"), state("def", endpoint=ENDPOINT))
    result = nnictl("stop", "--port", "1")
    assert (result.exit_code, result.stderr) == (
        1,
        "nnictl: no experiment has port 1; `nnictl experiment list` shows every open one\n",
    )
    result = nnictl("stop", "abc", "--port", "8888")
    assert (result.exit_code, result.stderr) == (
        2,
        "nnictl: port 8888 belongs to experiment def, not to abc; give either the port or the ID\n",
    )
    assert nnictl("stop", "--all", "--port", "8888").exit_code == 2
    assert manager.calls == []


def test_viewed_experiment_counts_as_open(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "VIEWED"), state("def", "STOPPED"))
    assert "abc" in nnictl("experiment", "list").stdout
    assert nnictl("stop").stdout == "Experiment abc is closed.\n"
