"""Containers that lack what others have: `/proc`, a folder for temporary files, ctypes, zlib, a Python that is new."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from listener_for_tests import ROOT, FakeListener, Runner, is_alive, report

from nni_manager.platform_kit.payload import runner_archive
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

#: Run before anything of the runner is: as if the container had been built so.
_WITHOUT = {
    "proc": "import trial_runner.processes as p; p._PROC = '/proc-that-is-not-there'",
    "ctypes": "sys.modules['_ctypes'] = None; sys.modules['ctypes'] = None",
    "temporary": "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; tempfile.tempdir = None",
    "zlib": "sys.modules['zlib'] = None",
}


def _lacking(runner: Runner, *names: str) -> Runner:
    missing = "; ".join(_WITHOUT[name] for name in names)
    program = f"import sys; {missing}; from trial_runner.__main__ import main; sys.exit(main())"
    runner.program = [sys.executable, "-c", program]
    return runner


def _archived(runner: Runner, *names: str) -> Runner:
    """From the one file that containers are given."""
    archive = runner.folder / "runner.pyz"
    archive.write_bytes(runner_archive())
    runner.environment["PYTHONPATH"] = str(archive)
    return _lacking(runner, *names)


@pytest.mark.parametrize("names", [("proc",), ("ctypes",), ("temporary",), ("proc", "ctypes", "temporary", "zlib")])
def test_a_trial_in_a_minimal_container(listener: FakeListener, runner: Runner, names: tuple[str, ...]) -> None:
    ended = _archived(runner, *names).run(f"{report(1)}; $PYTHON -S -c 'import nni; print(nni.__file__)'; exit 3")
    assert (ended.code, listener.values(), listener.exited["exitCode"]) == (3, [1], 3)
    assert ended.stdout.startswith(str(runner.system_dir)), "the stand-in lies where the runner may write"
    assert not Path(ended.stdout.strip()).exists() and list(runner.system_dir.glob(".stand-in*")) == []


def test_sigterm_reaches_the_command_without_proc(listener: FakeListener, runner: Runner) -> None:
    (runner.folder / "inner.sh").write_text(
        f"trap '{report('inner')}; exit' TERM\n{report('up')}\nwhile :; do sleep 0.01; done\n"
    )
    process = _lacking(runner, "proc").start(
        f"/bin/bash {runner.folder}/inner.sh & trap 'wait; {report('bye')}; exit 5' TERM; while :; do sleep 0.01; done"
    )
    listener.wait_for(lambda: listener.values() == ["up"])
    process.terminate()
    assert runner.wait(process).code == 5
    assert listener.values() == ["up", "inner", "bye"]


def test_ignored_sigterm_is_followed_by_sigkill_without_proc(listener: FakeListener, runner: Runner) -> None:
    process = _lacking(runner, "proc").start(
        f"trap '' TERM; sleep 1000 & echo $! > $NNI_SYS_DIR/pid; {report('on')}; while :; do sleep 1000; done",
        **{protocol.ENV_GRACE_S: "0.2"},
    )
    listener.wait_for(lambda: listener.values() == ["on"])
    process.terminate()
    assert runner.wait(process).code == 128 + signal.SIGKILL
    assert not is_alive(int((runner.system_dir / "pid").read_text()))


def test_strays_in_session_end_without_proc(listener: FakeListener, runner: Runner) -> None:
    ended = _lacking(runner, "proc").run("sleep 1000 & echo $! > $NNI_SYS_DIR/pid; exit 4")
    assert ended.code == 4
    assert not is_alive(int((runner.system_dir / "pid").read_text()))


def test_process_outside_session_is_ignored_without_proc(listener: FakeListener, runner: Runner) -> None:
    os.mkfifo(runner.folder / "up")
    (runner.folder / "stray.sh").write_text(f"echo $$ > {runner.folder}/up; exec sleep 1000")
    ended = _lacking(runner, "proc").run(
        f"setsid /bin/bash {runner.folder}/stray.sh & read pid < {runner.folder}/up; echo $pid; exit 4"
    )
    os.kill(int(ended.stdout), signal.SIGKILL)
    assert (ended.code, listener.exited["exitCode"]) == (4, 4)


def test_a_python_that_cannot_unpack_says_so(listener: FakeListener, runner: Runner) -> None:
    listener.code = b"x"
    ended = _lacking(runner, "zlib").run("touch $NNI_SYS_DIR/ran")
    assert ended.code == protocol.EXIT_BAD_CODE
    assert "it has no zlib" in listener.exited["stderrTail"]
    assert listener.exited["wasStarted"] is False


@pytest.mark.parametrize("is_archived", [True, False])
def test_an_older_python_is_a_sentence(runner: Runner, is_archived: bool) -> None:
    archive = runner.folder / "runner.pyz"
    archive.write_bytes(runner_archive())
    run = f"run_path({str(archive)!r})" if is_archived else "run_module('trial_runner', run_name='__main__')"
    program = f"import sys, runpy; sys.version_info = (3, 6, 15, 'final', 0); runpy.{run}"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (protocol.EXIT_USAGE, "")
    assert ended.stderr.startswith("trial_runner: this is Python 3.6, but trials need Python 3.7 or newer")
    assert ended.stderr.count("\n") == 1


def test_first_modules_parse_on_older_pythons() -> None:
    """The archive's entry is as plain."""
    for name in ("__init__.py", "python_version.py"):
        ast.parse((ROOT / "trial_runner" / name).read_text(), feature_version=(3, 4))


def test_runner_without_posts_imports_no_http_client() -> None:
    """It is half of what such a runner costs; also each look that the manager takes into a container is one."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trial_runner.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "trial_runner.runner.client" in imported and {"http.client", "ssl", "random"}.isdisjoint(imported)
