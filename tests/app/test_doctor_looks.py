"""The finding of each check of the doctor when something is wrong."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nni_manager import __version__
from nni_manager.app.doctor import config_file, daemon_and_keeper, data_directory, examination, installation, ports
from nni_manager.app.doctor import daemon_and_keeper as keeper_look
from nni_manager.app.doctor.finding import CheckFinding, CheckOutcome, ok
from nni_manager.config import registered_algorithms
from nni_manager.config.registered_algorithms import Registered
from nni_manager.config.settings import Settings
from nni_manager.domain.algorithm import Algorithm, Catalogue
from nni_manager.domain.errors import MissingExtra
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platform_kit.lock_holder import Holder
from nni_manager.platforms.local.platform import LocalPlatform
from tests.trial_runner.keeper_client_for_tests import keeper_directory

pytestmark = pytest.mark.unit


def by_check(findings: Iterator[CheckFinding]) -> dict[str, CheckFinding]:
    return {finding.check: finding for finding in findings}


@contextmanager
def locked(path: Path, pid: int = 4242) -> Iterator[None]:
    """Holds the lock like another process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{pid}\n")
        file.flush()
        yield


# nnictl on the PATH


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from nni.tools.nnictl.nnictl import parse_args", "belongs to NNI itself"),
        ("from nni_manager.cli.main import nnictl", "belongs to another installation of this program"),
        ("echo hello", "belongs to another program"),
    ],
)
def test_other_nnictl_first_on_path_is_reported(tmp_path: Path, line: str, words: str) -> None:
    script = tmp_path / "nnictl"
    script.write_text(f"#!/usr/bin/python3\n{line}\n")
    script.chmod(0o755)
    (found,) = installation.look_at_command({"PATH": f"{tmp_path}:{Path(sys.executable).parent}"})
    assert found.verdict is CheckOutcome.WARN and f"({script}) {words}" in found.sentence and found.advice


def test_nnictl_is_ours_or_missing(tmp_path: Path) -> None:
    here = Path(sys.executable).parent
    (found,) = installation.look_at_command({"PATH": f"{tmp_path}:{here}"})
    assert found.verdict is CheckOutcome.OK and str(here / "nnictl") in found.sentence
    (found,) = installation.look_at_command({"PATH": str(tmp_path)})
    assert found.verdict is CheckOutcome.WARN and "nni-manager" in found.advice and str(here) in found.advice


# The data directory


def test_a_directory_that_is_to_be_made(tmp_path: Path) -> None:
    found = by_check(data_directory.look(tmp_path / "some" / "where", 1024))
    assert found["data directory"].verdict is CheckOutcome.OK and "will be created" in found["data directory"].sentence
    assert list(tmp_path.iterdir()) == []


def test_data_directory_open_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    found = by_check(data_directory.look(tmp_path, 1024))["privacy"]
    assert found.verdict is CheckOutcome.WARN and "0755" in found.sentence and "chmod 0700" in found.advice
    tmp_path.chmod(0o700)
    assert by_check(data_directory.look(tmp_path, 1024))["privacy"].verdict is CheckOutcome.OK


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (found,) = data_directory.look(tmp_path / "data", 1024)
    assert found.verdict is CheckOutcome.FAIL


def test_a_file_above_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (found,) = data_directory.look(tmp_path / "data" / "some" / "where", 1024)
    assert found.verdict is CheckOutcome.FAIL and f"{tmp_path / 'data'} is not a folder" in found.sentence


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(data_directory.tempfile, "TemporaryFile", refuse)
    found = by_check(data_directory.look(tmp_path, 1024))["data directory"]
    assert found.verdict is CheckOutcome.FAIL and "Read-only file system" in found.sentence


def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_directory, "is_on_network", lambda path: True)
    assert by_check(data_directory.look(tmp_path, 1024))["file system"].verdict is CheckOutcome.FAIL


@pytest.mark.parametrize(
    ("free_mib", "files", "verdict"),
    [
        (50, 10**6, CheckOutcome.FAIL),
        (500, 10**6, CheckOutcome.WARN),
        (5000, 100, CheckOutcome.WARN),
        (5000, 10**6, CheckOutcome.OK),
    ],
)
def test_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, files: int, verdict: CheckOutcome
) -> None:
    real = os.statvfs(tmp_path)
    given = (real.f_bsize, 1024, *real[2:4], free_mib * 1024, 10**7, files, files, *real[8:])
    monkeypatch.setattr(data_directory.os, "statvfs", lambda path: os.statvfs_result(given))
    assert by_check(data_directory.look(tmp_path, 1024))["disk"].verdict is verdict


# The daemon


def test_no_daemon(tmp_path: Path) -> None:
    (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert found.verdict is CheckOutcome.OK and "none runs" in found.sentence
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_was_killed(tmp_path: Path) -> None:
    pointer = {"socket": str(tmp_path / "gone.sock"), "pid": 1, "version": __version__}
    (tmp_path / "control.json").write_text(json.dumps(pointer))
    (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert found.verdict is CheckOutcome.WARN and "start it again" in found.advice


def test_a_daemon_that_cannot_be_reached(tmp_path: Path) -> None:
    with locked(tmp_path / "daemon.lock"):
        (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert found.verdict is CheckOutcome.FAIL and "4242" in found.sentence


def test_a_daemon_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"pid": 7, "version": "0.1.0", "experiments": 2}
    monkeypatch.setattr(daemon_and_keeper.address, "find", lambda path: object())
    monkeypatch.setattr(daemon_and_keeper.ManagerClient, "daemon", lambda client: known)
    (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert found.verdict is CheckOutcome.WARN and "0.1.0" in found.sentence and __version__ in found.sentence
    known["version"] = __version__
    (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert found.verdict is CheckOutcome.OK and "knows 2 experiments, including closed ones" in found.sentence
    known["experiments"] = 1
    (found,) = daemon_and_keeper.look_at_daemon(tmp_path)
    assert "knows 1 experiment, including closed ones" in found.sentence


# Ports


def test_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = Settings(data_dir=tmp_path, port=port, trial_host="127.0.0.1")
        found = by_check(ports.look(settings))["service port"]
    assert found.verdict is CheckOutcome.WARN
    assert f"port {port} is in use by process {os.getpid()}" in found.sentence and "--port" in found.advice


def test_a_free_port_stays_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    found = by_check(ports.look(Settings(data_dir=tmp_path, port=port)))["service port"]
    assert found.verdict is CheckOutcome.OK
    socket.create_server(("127.0.0.1", port)).close()


def test_the_daemons_own_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_and_keeper, "open_ports", lambda path: {8080: "service", 8081: "trials"})
    found = by_check(ports.look(Settings(data_dir=tmp_path)))
    assert found["service port"].sentence == "8080 is open: the service listener of the running daemon"
    assert "trials" in found["trial port"].sentence and "endpoint port" not in found


def test_one_port_for_two_listeners(tmp_path: Path) -> None:
    found = by_check(ports.look(Settings(data_dir=tmp_path, port=9000, trial_port=9000)))["trial port"]
    assert found.verdict is CheckOutcome.FAIL and "are both 9000" in found.sentence


def test_any_port(tmp_path: Path) -> None:
    found = by_check(ports.look(Settings(data_dir=tmp_path, port=0)))
    assert found["service port"].sentence == "any free port on 127.0.0.1"
    assert found["trial port"].sentence == "any free port on 0.0.0.0"


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    found = by_check(ports.look(Settings(data_dir=tmp_path, host="192.0.2.1", token="s3cret" * 3)))
    assert found["service port"].verdict is CheckOutcome.FAIL and found["access"].verdict is CheckOutcome.OK
    assert not any("s3cret" in f"{each.sentence}{each.advice}" for each in found.values())


def test_an_open_listener_without_a_token(tmp_path: Path) -> None:
    found = by_check(ports.look(Settings(data_dir=tmp_path, host="0.0.0.0")))["access"]
    assert found.verdict is CheckOutcome.FAIL and "NNI_MANAGER_TOKEN" in found.advice


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_short_token(tmp_path: Path, host: str) -> None:
    found = by_check(ports.look(Settings(data_dir=tmp_path, host=host, port=0, token="s3cret")))["access"]
    assert found.verdict is CheckOutcome.FAIL and "16 characters" in found.advice


# The clock


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Sets the readings of clock and kernel."""
    says: dict[str, Any] = {"drift": 0.0, "synchronised": True}
    monkeypatch.setattr(installation, "_drift", lambda: says["drift"])
    monkeypatch.setattr(installation, "_is_synchronised", lambda: says["synchronised"])
    return says


@pytest.mark.parametrize(
    ("drift", "synchronised", "verdict"),
    [
        (0.0, True, CheckOutcome.OK),
        (0.0, None, CheckOutcome.OK),
        (0.0, False, CheckOutcome.WARN),
        (1.5, True, CheckOutcome.WARN),
    ],
)
def test_clock(told: dict[str, Any], drift: float, synchronised: bool | None, verdict: CheckOutcome) -> None:
    told.update(drift=drift, synchronised=synchronised)
    (found,) = installation.look_at_clock()
    assert found.verdict is verdict


def test_a_clock_that_was_never_set(told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.time, "gmtime", lambda: time.struct_time((1970, 1, 1, 0, 0, 5, 3, 1, 0)))
    (found,) = installation.look_at_clock()
    assert found.verdict is CheckOutcome.FAIL and "1970-01-01" in found.sentence


def test_the_kernel_is_asked_without_harm() -> None:
    assert installation._is_synchronised() in (True, False, None)


# Keeper, tuners, config


def test_a_keeper_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(folder: Path) -> dict[str, Any]:
        tried.append(folder)
        raise PermissionError(13, "Permission denied")

    tried: list[Path] = []
    monkeypatch.setattr(keeper_look, "_facts", fail)
    (found,) = keeper_look.look_at_keeper(tmp_path)
    assert found.verdict is CheckOutcome.FAIL and "Permission denied" in found.sentence
    assert not tried[0].exists()


def test_keeper_without_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def facts(folder: Path) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"cpu_count": 2, "memory_bytes": 2**33, "load": [0.5, 0, 0]}

    monkeypatch.setattr(keeper_look, "_facts", facts)
    monkeypatch.setattr(keeper_look, "_ANSWER_AT_WORK_S", 0.3)
    (tmp_path / "keeper").mkdir()
    with locked(tmp_path / "keeper" / "keeper.lock"):
        starts, trials = keeper_look.look_at_keeper(tmp_path)
        assert "2 processors, 8.0 GiB of memory, load 0.5" in starts.sentence
        assert (
            trials.verdict is CheckOutcome.FAIL
            and "process 4242" in trials.sentence
            and "does not respond" in trials.sentence
        )
        with locked(tmp_path / "daemon.lock"):
            assert len(list(keeper_look.look_at_keeper(tmp_path))) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_the_keeper_at_work_is_asked_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    monkeypatch.setattr(keeper_look, "_try", lambda _: ok("keeper", "another one is well"))
    monkeypatch.setattr(keeper_look, "_ANSWER_AT_WORK_S", 0.3 if not answers else 10.0)
    with keeper_directory() as running:
        running.start()
        running.spawn(client := running.connect(), "job", "exec sleep 60")
        client.close()
        assert running.process is not None
        os.kill(running.process.pid, signal.SIGCONT if answers else signal.SIGSTOP)
        _, found = keeper_look.look_at_keeper(running.directory)
        os.kill(running.process.pid, signal.SIGCONT)
    assert found.verdict is (CheckOutcome.WARN if answers else CheckOutcome.FAIL)
    assert str(running.process.pid) in found.sentence


@pytest.mark.parametrize("user", [os.getuid(), os.getuid() + 1])
def test_a_lock_that_another_user_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    (tmp_path / "start.lock").touch()
    holder = Holder(pid=77, user=user, name="flock")
    monkeypatch.setattr(data_directory, "holders", lambda path: [holder] if path == tmp_path / "start.lock" else [])
    found = [one for one in data_directory.look(tmp_path, 1024) if one.verdict is CheckOutcome.FAIL]
    if user == os.getuid():
        assert found == []
    else:
        assert f"process 77 (flock, user {user}) holds a lock on {tmp_path}/start.lock" in found[0].sentence


def test_a_tuner_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Catalogue(
        kind="tuner", group="none", missing=(), built_in=(Algorithm(name="Nobody", location="no.such:Tuner"),)
    )
    monkeypatch.setattr(installation, "TUNERS", broken)
    found = next(installation.look_at_algorithms())
    assert found.verdict is CheckOutcome.FAIL and found.sentence.startswith("Nobody cannot be used (InvalidInput: ")


def test_tuner_without_its_extra_is_a_note() -> None:
    missing = MissingExtra("the tuner GPTuner", "scikit-learn", "gp")
    found = installation._judge("tuner", "GPTuner", 0.1, missing.sentence, missing.command)
    assert (found.verdict, found.advice) == (CheckOutcome.NOTE, "pip install 'nni-manager[gp]'")


def test_a_config_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "experiment.yml").write_text("trialCommand: true\nnonsense: 1\n")
    found = list(config_file.look(tmp_path / "experiment.yml", tmp_path / "data"))
    assert len(found) > 1 and all(each.verdict is CheckOutcome.FAIL for each in found)
    assert any("experiment.yml:2: nonsense" in each.sentence for each in found)


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    (found,) = config_file.look(tmp_path / "experiment.yml", tmp_path / "data")
    assert found.verdict is CheckOutcome.FAIL


def test_config_without_working_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "experiment.yml").write_text(
        "trialCommand: 'true'\ntrialConcurrency: 1\ntuner: {name: Random}\nexperimentWorkingDirectory: file/sub\n"
        "searchSpace: {x: {_type: uniform, _value: [0, 1]}}\ntrainingService: {platform: local}\n"
    )
    (found,) = config_file.look(tmp_path / "experiment.yml", tmp_path / "data")
    assert found.verdict is CheckOutcome.FAIL and f"{tmp_path / 'file'} is not a folder" in found.sentence
    assert "experiment.yml:4: experimentWorkingDirectory" in found.sentence


def test_preflight_findings_of_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def preflight(self: LocalPlatform) -> list[PreflightFinding]:
        return [
            PreflightFinding(severity=Severity.WRONG, subject="login", sentence="it is refused", fix="renew it"),
            PreflightFinding(severity=Severity.AWAY, subject="hostB", sentence="no route to host"),
        ]

    monkeypatch.setattr(LocalPlatform, "preflight", preflight)
    (tmp_path / "experiment.yml").write_text(
        "trialCommand: 'true'\ntrialConcurrency: 1\ntuner: {name: Random}\n"
        "searchSpace: {x: {_type: uniform, _value: [0, 1]}}\ntrainingService: {platform: local}\n"
    )
    found = list(config_file.look(tmp_path / "experiment.yml", tmp_path / "data"))
    assert [(one.verdict, one.sentence, one.advice) for one in found if one.check == "preflight"] == [
        (CheckOutcome.FAIL, "local: login: it is refused", "renew it"),
        (CheckOutcome.WARN, "local: hostB: no route to host", ""),
    ]


def test_config_with_user_algorithm(tmp_path: Path) -> None:
    """The algorithm is registered in the daemon's data directory only."""
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    new = Registered(kind="tuner", name="Mine", class_name="mine.Mine", code_directory=str(tmp_path))
    registered_algorithms.register(tmp_path / "data", new)
    (tmp_path / "experiment.yml").write_text(
        "trialCommand: 'true'\ntrialCodeDirectory: .\ntrialConcurrency: 1\ntuner: {name: Mine}\n"
        "searchSpace: {x: {_type: uniform, _value: [0, 1]}}\ntrainingService: {platform: local}\n"
    )
    assert {each.verdict for each in config_file.look(tmp_path / "experiment.yml", tmp_path / "data")} == {
        CheckOutcome.OK
    }
    (found, *_) = config_file.look(tmp_path / "experiment.yml", tmp_path / "other")
    assert found.verdict is CheckOutcome.FAIL and "Mine" in found.sentence


# All together


def test_failing_check_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, disk_warning_mib: int) -> Iterator[CheckFinding]:
        raise RuntimeError("broken")
        yield

    monkeypatch.setattr(data_directory, "look", fail)
    monkeypatch.setattr(keeper_look, "look_at_keeper", lambda path: iter(()))
    monkeypatch.setattr(installation, "look_at_algorithms", lambda: iter(()))
    found = by_check(examination.examine(tmp_path, {}))
    assert (
        found["data directory"].verdict is CheckOutcome.FAIL
        and "RuntimeError('broken')" in found["data directory"].sentence
    )
    assert found["clock"].verdict is not CheckOutcome.FAIL


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").write_text("port: many\n")
    found = next(examination.examine(tmp_path, {}))
    assert found.check == "settings" and found.verdict is CheckOutcome.FAIL and "port" in found.sentence
