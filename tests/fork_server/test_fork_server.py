"""A fork is the process that was asked for, and what cannot be forked is started."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest
import uvloop

from nni_manager.platform_kit.payload import STAND_IN, with_stand_in
from tests import left_children
from tests.fork_server import popen
from tests.fork_server.asyncio_start import create_subprocess_exec
from tests.fork_server.order import TUNER, path_with_stand_in
from tests.fork_server.popen import Popen, take_interrupts
from tests.live_daemon import Daemon, running_daemon
from tests.waiting import until
from trial_runner.protocol import Decoder, encode

NNICTL = str(Path(sys.executable).with_name("nnictl"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"HOME": str(tmp_path / "home"), "NNI_MANAGER_DATA": str(tmp_path / "data")}
    return {**os.environ, **own}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as daemon:
        assert is_fork(daemon.process)
        yield daemon


def is_fork(process: Any) -> bool:
    """As its parent tells; it may have ended."""
    return isinstance(process, Popen) and process._teller is not None


def told(*words: str, **options: Any) -> tuple[Popen, str, str]:
    with Popen([NNICTL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        out, err = process.communicate(timeout=30)
    return process, out, err


def test_command_output_and_exit_code_are_unchanged(environment: dict[str, str]) -> None:
    for words in (["--version"], ["create"], ["trial", "ls", "nothing"], ["--help"]):
        process, out, err = told(*words, env=environment)
        expected = subprocess.run([NNICTL, *words], env=environment, capture_output=True, text=True)
        assert is_fork(process) and (process.returncode, out, err) == (
            expected.returncode,
            expected.stdout,
            expected.stderr,
        )


def test_kernel_shows_started_command(daemon: Daemon) -> None:
    assert daemon.process is not None
    seen = psutil.Process(daemon.process.pid)
    command = [sys.executable, "-m", "nni_manager", "serve", "--data-dir", str(daemon.data)]
    assert seen.cmdline()[: len(command)] == command and seen.cmdline()[-1] == "--no-listen"
    assert {**seen.environ(), **daemon.environment} == seen.environ() and seen.environ().keys() == {*daemon.environment}
    assert seen.name() == os.path.basename(sys.executable) and seen.exe() == psutil.Process().exe()
    assert daemon.call("GET", "/daemon")["pid"] == seen.pid


def test_fork_is_equivalent_to_fresh_start(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("second", "true"):
        (tmp_path / name).mkdir()
    with running_daemon(tmp_path / "second") as second:
        monkeypatch.setattr(popen, "_server", None)
        with running_daemon(tmp_path / "true") as true:
            assert is_fork(second.process) and not is_fork(true.process)
            # each has one descriptor more while it answers, and blocks signals while it starts a thread
            for fork in (daemon, second):
                until(lambda fork=fork: _descriptors(fork) == _descriptors(true))  # type: ignore[misc]
                until(lambda fork=fork: _status(fork) == _status(true))  # type: ignore[misc]


def _descriptors(daemon: Daemon) -> list[str]:
    """What kinds of them it has, and which Unix sockets."""
    assert daemon.process is not None
    kinds = [os.readlink(path).partition(":")[0] for path in Path(f"/proc/{daemon.process.pid}/fd").iterdir()]
    sockets = psutil.Process(daemon.process.pid).net_connections("unix")
    return sorted([kind for kind in kinds if not kind.startswith("/")] + [bool(one.laddr) * "named" for one in sockets])


def _status(daemon: Daemon) -> dict[str, str]:
    """Masks of signals, rights and the like, as the kernel has them."""
    assert daemon.process is not None
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    found = dict(line.split(":\t", 1) for line in lines)
    alike = ("Sig", "Cap", "Uid", "Gid", "Groups", "Umask", "NoNewPrivs", "Seccomp", "Cpus_allowed")
    return {name: value for name, value in found.items() if name.startswith(alike) and name != "SigQ"}


def test_fork_that_a_test_leaves_behind_fails_it(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    told("--version", env=environment)
    monkeypatch.setattr(left_children, "_REAPED_WITHIN_S", 0.1)
    before = left_children._children()
    command = [sys.executable, "-m", "nni_manager", "serve", "--no-listen"]
    with Popen(command, env=environment, stderr=subprocess.DEVNULL) as left:
        assert is_fork(left)
        with pytest.raises(pytest.fail.Exception, match=r"left behind: .* -m nni_manager serve --no-listen"):
            left_children._require_none(before)
        assert left.wait(20) == -signal.SIGKILL, "the next test meets none of it"
        left_children._require_none(before)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_ends_it_and_the_exit_status_says_so(daemon: Daemon, number: signal.Signals) -> None:
    process = daemon.process
    assert process is not None and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    assert process.wait(20) == process.poll() == (0 if number == signal.SIGTERM else -number)
    assert not psutil.pid_exists(process.pid)
    daemon.start()


def test_folder_mask_limits_and_group_are_the_starters(environment: dict[str, str], tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    data, mask = Path(environment["NNI_MANAGER_DATA"]), os.umask(0o027)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] - 3, limits[1]))
        with running_daemon(tmp_path, environment={"NNI_TEST_MARK": "7"}) as daemon:
            assert daemon.process is not None
            seen = psutil.Process(daemon.process.pid)
            status = dict(line.split(":\t") for line in Path(f"/proc/{seen.pid}/status").read_text().splitlines())
            assert status["Umask"] == "0027" and seen.cwd() == os.getcwd()
            assert seen.rlimit(resource.RLIMIT_NOFILE)[1] == limits[1] and os.getpgid(seen.pid) != seen.pid
        done, _, err = told("experiment", "list", env=environment, cwd=tmp_path, process_group=0)
        assert (done.returncode, err) == (0, "") and data.exists()
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def keeper_of(data: str) -> psutil.Process:
    lock = Path(data, "keeper", "keeper.lock")
    keeper = psutil.Process(int(lock.read_text().splitlines()[0]))
    assert keeper.cmdline()[1:4] == ["-m", "trial_runner.keeper", "serve"] and os.getsid(keeper.pid) == keeper.pid
    return keeper


def tuners_of(server: psutil.Process, data: str) -> list[psutil.Process]:
    found = [child for child in server.children() if child.cmdline()[1:] == ["-m", TUNER]]
    return [each for each in found if each.environ()["NNI_MANAGER_TUNER"].startswith(data)]


def test_command_forks_the_daemon_that_it_starts(environment: dict[str, str], tmp_path: Path) -> None:
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCommand": "sleep 1000",
        "trialConcurrency": 1,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    (tmp_path / "experiment.yml").write_text(json.dumps(config))
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        environment["XDG_RUNTIME_DIR"] = runtime
        process, _, err = told("create", "--config", str(tmp_path / "experiment.yml"), env=environment)
        assert process.returncode == 0, err
        daemon = Daemon(Path(environment["NNI_MANAGER_DATA"]))
        started = daemon.call("GET", "/daemon")["pid"]
        try:
            assert (
                "fork_server" in " ".join(psutil.Process(started).parent().cmdline()) and os.getsid(started) == started
            )
            assert psutil.Process(started).cmdline()[1:5] == ["-P", "-m", "nni_manager", "serve"]
            (experiment,) = daemon.call("GET", "/experiments")["experiments"]
            daemon.wait_for(experiment["id"], lambda _: daemon.trials(experiment["id"], status="RUNNING"))
            server = keeper_of(environment["NNI_MANAGER_DATA"]).parent()
            assert "fork_server" in " ".join(server.cmdline())
            (tuner,) = tuners_of(server, environment["NNI_MANAGER_DATA"])
            assert tuner.environ()["PYTHONPATH"].endswith(STAND_IN) and os.getsid(tuner.pid) == tuner.pid
        finally:
            stopped, _, err = told("stop", "--all", env=environment)
        assert stopped.returncode == 0, err
        psutil.wait_procs([psutil.Process(started)] if psutil.pid_exists(started) else [], timeout=20)


def test_interrupt_ends_a_command_as_a_shell_expects(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "nni_manager", "serve", "--no-listen"]
    ready, told_ready = os.pipe()
    with open(ready, "rb") as lines:
        process = Popen(
            [*command, "--ready-fd", str(told_ready)],
            env=environment,
            pass_fds=(told_ready,),
            stderr=subprocess.DEVNULL,
            preexec_fn=take_interrupts,
        )
        os.close(told_ready)
        assert is_fork(process) and lines.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["--no-such-option"], 2)])
def test_asyncio_reads_output_and_exit_code(
    environment: dict[str, str], loops: Callable[[], asyncio.AbstractEventLoop], words: list[str], code: int
) -> None:
    async def run() -> None:
        process = await create_subprocess_exec(NNICTL, *words, env=environment, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
        assert process.returncode == code and (err if code else out)

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(run())


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_asyncio_writes_to_it_and_learns_of_a_signal(
    environment: dict[str, str], loops: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run() -> None:
        process = await create_subprocess_exec(sys.executable, "-m", TUNER, env=environment, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(encode({"verb": "state", "id": 7}))
        assert next(iter(Decoder().feed(await process.stdout.read(1 << 16))))["id"] == 7
        assert "fork_server" in " ".join(psutil.Process(process.pid).parent().cmdline())
        process.kill()
        while process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)  # before that it looks whether the process has ended
            await asyncio.sleep(0)
        await process.communicate()  # its transport closes itself at the end of both
        assert await process.wait() == -signal.SIGKILL

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(run())


def test_stand_in_has_same_position_on_path(environment: dict[str, str]) -> None:
    told = {"PYTHONPATH": ":".join(["/first", *filter(None, [environment.get("PYTHONPATH")])])}
    without, with_it = (_path({**environment, **added}) for added in (told, with_stand_in(told)))
    assert path_with_stand_in(without) == with_it


def _path(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"]
    return json.loads(subprocess.check_output(command, env=environment))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "LC_ALL"])
def test_startup_files_force_fresh_interpreter(environment: dict[str, str], name: str) -> None:
    value = {"PYTHONPATH": "/nowhere", "LD_PRELOAD": "", "LC_ALL": "C"}[name]
    process, out, err = told("--version", env={**environment, name: value})
    assert not is_fork(process) and out and not err


def test_another_program_is_started(environment: dict[str, str]) -> None:
    for command in (["true"], [sys.executable, "-c", ""], [sys.executable, "-m", "nni_manager_of_others"]):
        with Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            process.wait(20)
        assert not is_fork(process)


@pytest.mark.true_start
def test_marked_test_starts_truly(environment: dict[str, str]) -> None:
    process, out, _ = told("--version", env=environment)
    assert not is_fork(process) and out
