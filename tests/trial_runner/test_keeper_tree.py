"""A job is its whole tree: wherever a process of it went, it is gone when the job has ended."""

import os
import signal
import sys
import time

import pytest
from keeper_client_for_tests import Client, KeeperProcess, is_alive

from trial_runner import protocol

pytestmark = pytest.mark.acceptance

#: Ways to start a process so that it loses one mark or another.
_STRAYS = {
    "background": "{stray} &",
    "own session": "setsid {stray} &",
    "double fork": "(setsid {stray} &)",
    "double fork without environment": "(env -i setsid {stray} &)",
    "without environment, of a main process that waits": "env -i {stray} & ",
    "triple fork, each in a session without environment": "(env -i setsid /bin/bash -c '(env -i setsid {stray} &)' &)",
}
#: Writes over its environment, where `/proc` reads it.
_RENAMED = """
import ctypes, os, signal
begin, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, 0, end - begin)
assert not open("/proc/self/environ", "rb").read().strip(b"\\0")
print(os.getpid(), file=open("{outbox}", "a"), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("way", _STRAYS)
def test_strays_of_a_job_that_ends_by_itself_are_killed(keeper: KeeperProcess, client: Client, way: str) -> None:
    pid = _spawn_with_stray(keeper, client, way, _script(keeper, "exec sleep 1000"))
    assert is_alive(pid)
    (keeper.attempt("job") / "gate").write_text("go\n")
    assert client.until_ended("job").jobs["job"]["exit_code"] == 3
    assert not is_alive(pid)


@pytest.mark.parametrize("way", _STRAYS)
def test_a_stop_reaches_strays_and_waits_for_them(keeper: KeeperProcess, client: Client, way: str) -> None:
    stray = _script(keeper, "while :; do sleep 0.01; done", on_term=f"echo bye >> {_outbox(keeper)}")
    pid = _spawn_with_stray(keeper, client, way, stray)
    client.ask("signal", name="job", grace_s=20)
    heard = client.until_ended("job")
    assert heard.jobs["job"]["signal"] == signal.SIGTERM
    assert heard.lines("job") == ["bye"], "it was asked to end, and not killed"
    assert not is_alive(pid)


def test_a_process_that_wrote_over_its_environment_is_found(keeper: KeeperProcess, client: Client) -> None:
    """As renaming a process does."""
    keeper.attempt("job").mkdir(parents=True)
    script = keeper.attempt("job") / "renamed.py"
    script.write_text(_RENAMED.format(outbox=_outbox(keeper)))
    pid = _spawn_with_stray(keeper, client, "double fork", f"{sys.executable} {script}")
    (keeper.attempt("job") / "gate").write_text("go\n")
    client.until_ended("job")
    assert not is_alive(pid)


def test_ignored_sigterm_leads_to_sigkill_after_grace_period(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "trap '' TERM; echo '\"on\"' >> $NNI_OUTBOX; while :; do sleep 1000; done")
    client.until_lines("job", 1)
    before = time.monotonic()
    client.ask("signal", name="job", grace_s=0.3)
    ended = client.until_ended("job").jobs["job"]
    assert ended["signal"] == signal.SIGKILL
    assert time.monotonic() - before >= 0.3


def test_later_stop_can_only_shorten_grace_period(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "trap 'echo asked' TERM; echo '\"on\"' >> $NNI_OUTBOX; while :; do sleep 0.01; done")
    client.until_lines("job", 1)
    client.ask("signal", name="job", grace_s=1000)
    client.ask("signal", name="job", grace_s=0)
    client.ask("signal", name="job", grace_s=1000)
    assert client.until_ended("job").jobs["job"]["signal"] == signal.SIGKILL


def test_strays_keep_grace_period_after_main_process(keeper: KeeperProcess, client: Client) -> None:
    permit = keeper.attempt("job") / "permit"
    permit.parent.mkdir(parents=True)
    os.mkfifo(permit)
    saving = f"read go < {permit}; echo saved >> {_outbox(keeper)}"
    stray = _script(keeper, "while :; do sleep 0.01; done", on_term=saving)
    pid = _spawn_with_stray(keeper, client, "own session", stray)
    client.ask("signal", name="job", grace_s=20)
    permit.write_text("go\n")  # waits until the stray, having been asked to end, reads it
    heard = client.until_ended("job")
    assert heard.lines("job") == ["saved"]
    assert heard.jobs["job"]["signal"] == signal.SIGTERM
    assert not is_alive(pid)


@pytest.mark.alone
def test_four_jobs_that_obey_are_stopped_at_once(keeper: KeeperProcess, client: Client) -> None:
    names = [f"job-{index}" for index in range(4)]
    for name in names:
        keeper.spawn(client, name, "exec sleep 1000")
    before = time.monotonic()
    for name in names:
        client.send("signal", name=name, grace_s=20)
    ended = client.until_ended(*names).jobs
    assert time.monotonic() - before < 0.3
    assert {job["signal"] for job in ended.values()} == {signal.SIGTERM}


def test_other_jobs_are_left_alone(keeper: KeeperProcess, client: Client) -> None:
    stray = f"/bin/bash -c 'echo $$ > {keeper.attempt('other')}/{protocol.MAIN_OUTBOX}; exec sleep 1000'"
    other = keeper.spawn(client, "other", f"(env -i setsid {stray} &); exec sleep 1000")
    stray_pid = int(client.until_lines("other", 1).lines("other")[0])
    keeper.spawn(client, "job", "(env -i setsid sleep 1000 &); exit 0")
    client.until_ended("job")
    keeper.spawn(client, "stopped", "exec sleep 1000")
    client.ask("signal", name="stopped", grace_s=0)
    client.until_ended("stopped")
    assert is_alive(other["pid"])
    assert is_alive(stray_pid)
    assert client.ask("list")["jobs"]["other"]["state"] == protocol.RUNNING


def test_orphan_of_running_job_is_reaped(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "other", "exit 0")
    client.until_ended("other")
    keeper.spawn(client, "job", f"(setsid /bin/bash -c 'echo $$ >> {_outbox(keeper)}' &); exec sleep 1000")
    orphan = int(client.until_lines("job", 1).lines("job")[0])
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{orphan}"):  # a zombie, too, has its place there
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.ask("list")["jobs"]["job"]["state"] == protocol.RUNNING


def test_a_stop_is_quiet_for_jobs_that_ended_or_never_were(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "exit 0")
    client.until_ended("job")
    assert client.ask("signal", name="job", grace_s=1) == {}
    assert client.ask("signal", name="unheard-of", grace_s=1) == {}


def test_hundreds_of_strays_are_ended(keeper: KeeperProcess, client: Client) -> None:
    command = "for i in $(seq 200); do (env -i setsid sleep 1000 & echo $! >> $D/pids); done; exit 0"
    keeper.spawn(client, "job", command)
    client.until_ended("job")
    pids = [int(line) for line in (keeper.attempt("job") / "pids").read_text().split()]
    assert len(pids) == 200
    assert not any(map(is_alive, pids))


def _outbox(keeper: KeeperProcess) -> str:
    return str(keeper.attempt("job") / protocol.MAIN_OUTBOX)


def _script(keeper: KeeperProcess, body: str, on_term: str = "") -> str:
    """A command that says its pid through the outbox once its trap is set, then runs the body."""
    script = keeper.attempt("job") / "stray.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    trap = f"trap '{on_term}; exit' TERM\n" if on_term else ""
    script.write_text(f"{trap}echo $$ >> {_outbox(keeper)}\n{body}\n")
    return f"/bin/bash {script}"


def _spawn_with_stray(keeper: KeeperProcess, client: Client, way: str, stray: str) -> int:
    """The stray's pid, once it is up; the main process waits at a gate."""
    os.mkfifo(keeper.attempt("job") / "gate")
    keeper.spawn(client, "job", f"{_STRAYS[way].format(stray=stray)}\nread line < $D/gate; exit 3")
    return int(client.until_lines("job", 1).lines("job")[0])
