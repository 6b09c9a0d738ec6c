"""Experiments with separate ports: users see two managers, but one daemon serves both."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.command_line import REPORT, RUN_ON, CommandLine, command_line, id_in, state_of
from tests.live_daemon import Daemon
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A command line whose daemon stays because an experiment is open."""
    with command_line(tmp_path_factory.mktemp("kept")) as line:
        line.create(trialCommand=RUN_ON, maxTrialNumber=1)
        yield line


def test_one_daemon_serves_two_endpoints(nnictl: CommandLine) -> None:
    first_port, second_port = _free_ports(2)
    config = nnictl.config(trialCommand=RUN_ON)
    out = nnictl.good("create", "-c", config, "--port", first_port)
    first = id_in(out)
    assert f"Page  http://127.0.0.1:{first_port}/\n" in out
    out = nnictl.good("create", "-c", config, "-p", second_port, "--url_prefix", "/my/pre/")
    second = id_in(out)
    assert f"http://127.0.0.1:{second_port}/my/pre/\n" in out
    assert _status(first_port) == "RUNNING" and _status(second_port, "/my/pre") == "RUNNING"
    assert _get(first_port, "/api/v1/nni/experiment").json()["id"] == first
    assert _get(second_port, "/my/pre/api/v1/nni/experiment").json()["id"] == second
    assert len([line for line in nnictl.processes() if " serve --auto" in line]) == 1
    listeners = nnictl.daemon.call("GET", "/daemon")["listeners"]
    assert [listener["address"] for listener in listeners if listener["kind"] == "endpoint"] == [
        f"http://127.0.0.1:{first_port}",
        f"http://127.0.0.1:{second_port}",
    ]
    assert nnictl.good("stop", "--port", second_port) == f"Experiment {second} is stopped.\n"
    assert _is_free(second_port) and _status(first_port) == "RUNNING"
    assert nnictl.daemon.status(second)["endpoint"] is None
    code, sentence = nnictl.bad("stop", "--port", second_port)
    assert (code, sentence) == (
        1,
        f"nnictl: no experiment has port {second_port}; `nnictl experiment list` shows every open one",
    )
    assert nnictl.bad("stop", second, "--port", first_port)[0] == 2
    nnictl.good("resume", second, "--port", second_port)
    assert _status(second_port) == "RUNNING"
    assert len(nnictl.good("stop", "--all").splitlines()) == 2
    assert _is_free(first_port) and _is_free(second_port)
    assert nnictl.traces() == []


def test_taken_port_is_named_and_nothing_is_created(kept: CommandLine) -> None:
    (port,), before = _free_ports(1), _made(kept)
    holder = kept.create(trialCommand=RUN_ON)
    config = kept.config(trialCommand=RUN_ON)
    with socket.create_server(("127.0.0.1", port)):
        code, sentence = kept.bad("create", "-c", config, "--port", port)
    name = psutil.Process().name()
    assert (code, sentence) == (
        1,
        f"nnictl: port {port} is in use by process {os.getpid()} ({name}); choose another with --port",
    )
    taken = kept.daemon.status(holder)["endpoint"]["port"]
    code, sentence = kept.bad("create", "-c", config, "--port", taken)
    assert (
        sentence == f"nnictl: port {taken} is in use by the endpoint of experiment {holder}; choose another with --port"
    )
    assert kept.bad("create", "-c", config, "--url_prefix", "a/../b")[0] == 2
    assert _made(kept) == tuple(each | {holder} for each in before)
    kept.good("stop", holder)


def test_port_is_chosen_when_none_is_given(nnictl: CommandLine) -> None:
    """A daemon without a service assigns the next free port; one with a service or without ports assigns none."""
    first, second = nnictl.create(trialCommand=RUN_ON), nnictl.create(trialCommand=RUN_ON)
    ports = [nnictl.daemon.status(id_)["endpoint"]["port"] for id_ in (first, second)]
    assert ports[0] != ports[1] and min(ports) >= 8080, "other tests may take and free ports between the two"
    nnictl.good("stop", "--all")
    for arguments in (["--port", "0"], ["--no-listen"]):
        served = nnictl.serve(*arguments)
        out = nnictl.good("create", "-c", nnictl.config(trialCommand=RUN_ON))
        page = re.search(r"^Page +(http\S+)$", out, re.MULTILINE)
        assert (page is not None) == ("--port" in arguments)
        assert page is None or id_in(out) in httpx.get(page[1], trust_env=False).text
        nnictl.good("stop", "--all")
        assert served.terminate() == 0


def test_restarted_daemon_opens_its_endpoints_again(nnictl: CommandLine) -> None:
    ports = _free_ports(2)
    running = id_in(nnictl.good("create", "-c", nnictl.config(trialCommand=RUN_ON), "-p", ports[0], "-u", "my/pre"))
    viewed = nnictl.create(trialCommand=RUN_ON)
    nnictl.good("stop", viewed)
    out = nnictl.good("view", viewed[:4], "--port", ports[1])
    assert f"Experiment {viewed} is open for reading only; `nnictl stop {viewed}` closes it.\n" in out
    assert f"http://127.0.0.1:{ports[1]}/\n" in out
    state_of(nnictl.daemon, running, RUNNING=2)
    _kill(nnictl.daemon)
    assert _is_free(ports[0]) and _is_free(ports[1])
    until(lambda: _registry(nnictl)[running]["status"] == "RUNNING")
    served = nnictl.serve("--port", "0")
    assert _status(ports[0], "/my/pre") == "RUNNING" and _status(ports[1]) == "VIEWED"
    state_of(served, running, RUNNING=2)
    nnictl.good("stop", "--port", ports[1])
    assert _is_free(ports[1]) and nnictl.daemon.status(viewed)["status"] == "STOPPED"
    nnictl.good("stop", running)


def test_ports_are_read_from_folders_when_the_index_is_lost(nnictl: CommandLine) -> None:
    (port,) = _free_ports(1)
    id_ = id_in(nnictl.good("create", "-c", nnictl.config(trialCommand=RUN_ON), "-p", port, "-u", "x"))
    state_of(nnictl.daemon, id_, RUNNING=2)  # an experiment without jobs would stay closed
    _kill(nnictl.daemon)
    for path in nnictl.data.glob("index.sqlite*"):
        path.unlink()
    nnictl.serve()  # only endpoints listen
    until(lambda: "--no-listen" in nnictl.good("experiment", "list"), what="this daemon opens no ports")
    nnictl.end()
    nnictl.serve("--port", "0")
    assert _status(port, "/x") == "RUNNING"
    nnictl.good("stop", "--all")


def test_taken_port_is_a_warning_until_it_is_free(nnictl: CommandLine) -> None:
    (port,) = _free_ports(1)
    id_ = id_in(nnictl.good("create", "-c", nnictl.config(trialCommand=RUN_ON), "-p", port))
    _kill(nnictl.daemon)
    with socket.create_server(("127.0.0.1", port)):
        served = nnictl.serve("--port", "0")
        (problem,) = served.status(id_)["errors"]
        assert problem.startswith(f"its endpoint cannot be reopened: port {port} is in use by process {os.getpid()}")
        assert problem[:90] in nnictl.good("experiment", "list"), "cut to one line"
        assert problem in nnictl.good("experiment", "status", id_)
        until(lambda: served.status(id_)["counts"])  # it runs nevertheless
    until(lambda: served.status(id_)["errors"] == [])
    assert _status(port) == "RUNNING"
    nnictl.good("stop", "--all")


def test_done_experiment_keeps_its_endpoint(nnictl: CommandLine) -> None:
    (port,) = _free_ports(1)
    id_ = id_in(nnictl.good("create", "-c", nnictl.config(trialCommand=REPORT), "-p", port))
    nnictl.daemon.wait(id_, "DONE")
    assert _status(port) == "DONE"
    until(lambda: _registry(nnictl)[id_]["status"] == "DONE")
    entry = _registry(nnictl)[id_]
    assert entry["port"] == port and isinstance(entry["endTime"], int)
    nnictl.good("stop", id_)
    assert _is_free(port) and nnictl.traces() == []


def test_viewed_experiment_keeps_the_daemon_alive(nnictl: CommandLine) -> None:
    other, id_ = nnictl.create(trialCommand=RUN_ON), nnictl.create(trialCommand=RUN_ON)
    nnictl.good("stop", id_)
    (port,) = _free_ports(1)
    nnictl.good("view", id_, "--port", port)
    nnictl.good("stop", other)
    assert _status(port) == "VIEWED"
    assert id_ in nnictl.good("experiment", "list") and nnictl.good("trial", "ls", id_)
    code, sentence = nnictl.bad("update", "concurrency", id_, "--value", 3)
    assert code == 1 and f"{id_} is viewed" in sentence
    assert nnictl.good("stop") == f"Experiment {id_} is closed.\n"
    assert nnictl.traces() == []
    nnictl.good("view", id_, "--port", port)
    assert "is running again" in nnictl.good("resume", id_), "what is viewed can be resumed, and stays where it is"
    assert _status(port) == "RUNNING"
    nnictl.good("stop", "--all")
    assert nnictl.traces() == []


def test_copied_folder_is_viewed_and_resumed(kept: CommandLine) -> None:
    id_ = kept.create(trialCommand=REPORT, maxTrialNumber=2)
    kept.daemon.wait(id_, "DONE")
    kept.good("stop", id_)
    elsewhere = kept.folder / "elsewhere"
    shutil.copytree(kept.data / id_, elsewhere / id_)
    kept.good("experiment", "delete", id_, "--yes")
    (port,) = _free_ports(1)
    code, sentence = kept.bad("view", id_, "--port", port, "--experiment_dir", kept.folder)
    assert code == 1 and f"cannot find experiment folder {kept.folder / id_}" in sentence and _is_free(port)
    kept.good("view", id_, "--port", port, "--experiment_dir", elsewhere)
    assert _status(port) == "VIEWED" and len(_get(port, "/api/v1/nni/trial-jobs").json()) == 2
    kept.good("stop", id_)
    out = kept.good("resume", id_, "-e", elsewhere / id_, "--port", port, "--debug")
    assert f"Logs  {elsewhere / id_}\n" in out
    profile = _get(port, "/api/v1/nni/experiment").json()
    assert (profile["params"]["debug"], profile["logDir"]) == (True, str(elsewhere / id_))
    kept.good("stop", id_)


def test_debug_option_sets_the_log_level(kept: CommandLine) -> None:
    id_ = id_in(kept.good("create", "-c", kept.config(trialCommand=RUN_ON), "--debug", "-p", 0))
    shown = json.loads(kept.good("experiment", "show", id_, "--json"))
    assert shown["config"]["debug"] is True and shown["config"]["logLevel"] == "debug"
    assert shown["endpoint"]["port"] > 0
    kept.good("stop", id_)


def test_page_works_below_an_endpoint_prefix(kept: CommandLine) -> None:
    (port,) = _free_ports(1)
    id_ = id_in(kept.good("create", "-c", kept.config(trialCommand=RUN_ON), "-p", port, "-u", "my/pre"))
    state_of(kept.daemon, id_, RUNNING=2)
    page = _get(port, "/my/pre/")
    assert page.status_code == 200 and id_ in page.text
    paths = set(_links(page.text))
    assert paths and all(path.startswith("/my/pre/") for path in paths)
    events = next(path for path in paths if path.endswith("/stream"))
    for path in paths - {events}:
        if not re.search(r"/(stop|kill|resume|analysis|analysis/pair)$|/(stop|kill|resume)[?]", path):
            assert _get(port, path).status_code == 200, path
    base = f"http://127.0.0.1:{port}"
    with httpx.Client(trust_env=False, base_url=base) as client, client.stream("GET", events) as stream:
        assert next(stream.iter_lines()) == "event: state"
    stop = next(path for path in paths if "/stop" in path)
    with httpx.Client(trust_env=False, base_url=base, timeout=30) as client:
        answer = client.post(stop)
    assert answer.status_code == 200 and f"nnictl resume {id_}" in answer.text
    until(lambda: _is_free(port))


def test_endpoints_require_the_token(nnictl: CommandLine) -> None:
    nnictl.environment |= {"NNI_MANAGER_TOKEN": "s3cret-of-sixteen"}
    (port,) = _free_ports(1)
    nnictl.good("create", "-c", nnictl.config(trialCommand=RUN_ON), "-p", port)
    url = f"http://127.0.0.1:{port}/api/v1/nni/check-status"
    assert httpx.get(url, trust_env=False).status_code == 401
    shown = {"Authorization": "Bearer s3cret-of-sixteen"}
    assert httpx.get(url, headers=shown, trust_env=False).status_code == 200
    foreign = {**shown, "Origin": "http://evil.example"}
    assert httpx.get(url, headers=foreign, trust_env=False).status_code == 403
    nnictl.good("stop", "--all")


def test_address_that_others_reach_needs_a_token(nnictl: CommandLine) -> None:
    nnictl.environment |= {"NNI_MANAGER_HOST": "0.0.0.0"}
    code, sentence = nnictl.bad("create", "-c", nnictl.config(trialCommand=RUN_ON), "-p", 0)
    assert code == 2 and "--host 0.0.0.0 can be reached by others: set NNI_MANAGER_TOKEN" in sentence


def test_nnis_list_names_our_experiments(nnictl: CommandLine) -> None:
    registry = nnictl.folder / "home" / "nni-experiments" / ".experiment"
    registry.parent.mkdir(parents=True)
    theirs = {"theirs01": {"id": "theirs01", "status": "RUNNING", "pid": 1, "port": 8090, "tag": []}}
    registry.write_text(json.dumps(theirs))
    (port,) = _free_ports(1)
    out = nnictl.good(
        "create", "-c", nnictl.config(trialCommand=RUN_ON, experimentName="demo"), "-p", port, "-u", "x/y"
    )
    id_, daemon = id_in(out), nnictl.daemon.call("GET", "/daemon")["pid"]
    until(lambda: "pid" in _registry(nnictl).get(id_, {}))  # after it has opened
    pid = _registry(nnictl)[id_]["pid"]
    assert psutil.Process(pid).ppid() == daemon, "ending that process must stop this experiment alone, not the daemon"
    state = nnictl.daemon.status(id_)
    assert _registry(nnictl)[id_] == {
        "id": id_,
        "port": port,
        "startTime": state["createdMs"],
        "endTime": "N/A",
        "status": "RUNNING",
        "platform": "local",
        "experimentName": "demo",
        "tag": [],
        "pid": pid,
        "logDir": str(nnictl.data),
        "prefixUrl": "x/y",
        "webuiUrl": [f"http://127.0.0.1:{port}/x/y"],
    }
    nnictl.good("stop", id_)
    entry = _registry(nnictl)[id_]
    assert entry["status"] == "STOPPED" and isinstance(entry["endTime"], int)
    assert "port" not in entry and "pid" not in entry, "the last word is written before the daemon has ended"
    nnictl.good("experiment", "delete", id_, "--yes")
    nnictl.good("stop", "--all")
    assert _registry(nnictl) == theirs


def _made(line: CommandLine) -> tuple[set[str], set[str]]:
    """Experiments that the daemon knows, and those with a folder."""
    known = {one["id"] for one in line.daemon.call("GET", "/experiments")["experiments"]}
    return known, {path.parent.name for path in line.data.glob("*/db")}


def _registry(nnictl: CommandLine) -> dict[str, Any]:
    path = nnictl.folder / "home" / "nni-experiments" / ".experiment"
    return json.loads(path.read_text()) if path.exists() else {}


def _kill(daemon: Daemon) -> None:
    process = psutil.Process(daemon.call("GET", "/daemon")["pid"])
    process.send_signal(signal.SIGKILL)
    process.wait(20)


def _get(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=30, verify=False)


def _status(port: int, prefix: str = "") -> str:
    return str(_get(port, f"{prefix}/api/v1/nni/check-status").json()["status"])


def _links(page: str) -> list[str]:
    return [unescape(path) for path in re.findall(r'(?:href|src|action|data-\w+)="(/[^"]*)"', page)]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Check that no process listens there."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
