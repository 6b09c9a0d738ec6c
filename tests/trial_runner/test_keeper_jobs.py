"""Jobs of a keeper: how they start, what they see, how their end is told."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from keeper_client_for_tests import Client, KeeperProcess, RefusedError, claim_of, lasting

from trial_runner import protocol
from trial_runner.keeper.serving.listener import LATE_S

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize(
    ("command", "exit_code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -9 $$", None, signal.SIGKILL),
        ("kill -SEGV $$", None, signal.SIGSEGV),
    ],
)
def test_end_is_in_event_state_file_and_list(
    keeper: KeeperProcess, client: Client, command: str, exit_code: int | None, number: int | None
) -> None:
    started = keeper.spawn(client, "job", f"echo trouble >&2; {command}")
    ended = client.until_ended("job").jobs["job"]
    assert (ended["state"], ended["exit_code"], ended["signal"]) == (protocol.ENDED, exit_code, number)
    assert ended["stderr_tail"] == ("" if exit_code == 0 else "trouble\n")
    assert (ended["pid"], ended["owner"]) == (started["pid"], "tests")
    assert started["started_ms"] <= ended["ended_ms"]
    assert 0 <= ended["ended_ago_ms"] <= ended["started_ago_ms"]
    listed = client.ask("list")["jobs"]["job"]
    assert lasting(listed) == lasting(ended) and listed["ended_ago_ms"] >= ended["ended_ago_ms"]
    end = json.loads(keeper.state_file("job").read_text().splitlines()[-1])
    assert (end["exit_code"], end["signal"], end["ended_ms"]) == (exit_code, number, ended["ended_ms"])
    assert sorted(os.listdir(keeper.attempt("job"))) == ["outbox", "stderr", "stdout"]


def test_short_job_is_reported_in_one_message(keeper: KeeperProcess, client: Client) -> None:
    def first_piece(number: int) -> list[str]:
        request = client.send("spawn", **keeper.request(f"job{number}", 'echo \'{"value": 1}\' > "$NNI_OUTBOX"'))
        found = protocol.Decoder().feed(client.socket.recv(1 << 20))
        client.ask("hello")
        return ["answer" if message.get("id") == request else str(message.get("event")) for message in found]

    # on a busy machine one may take longer than the moment
    assert any(first_piece(number) == ["answer", "lines", "ended"] for number in range(20))


def test_running_job_is_reported_with_its_age(keeper: KeeperProcess, client: Client) -> None:
    begun_s = time.monotonic()
    running = keeper.spawn(client, "job", "exec sleep 1000")
    passed_ms = 1000 * (time.monotonic() - begun_s)
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    assert running["state"] == protocol.RUNNING
    assert 1000 * LATE_S - 2 * tick_ms <= running["started_ago_ms"] <= passed_ms + 2 * tick_ms


def test_files_of_an_attempt_are_listed(keeper: KeeperProcess, client: Client) -> None:
    """Those below its folder, without links and what begins with a dot; none without the folder."""
    keeper.spawn(
        client, "job", 'mkdir "$D/model"; cd "$D"; echo 1 > model/weights; ln -s /etc/passwd link; touch .hidden'
    )
    client.until_ended("job")
    listed = client.ask("files", attempt_directory=str(keeper.attempt("job")))
    assert {"stdout", "stderr", "model/weights"} <= set(listed["files"]) and listed["is_complete"]
    assert not {"link", ".hidden"} & set(listed["files"])
    assert client.ask("files", attempt_directory=str(keeper.attempt("nothing")))["files"] == []


def test_job_has_only_its_environment(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "exec env -0", environment={"ODD": "a=b\nc"})
    client.until_ended("job")
    seen = dict(entry.split("=", 1) for entry in keeper.read(client, "job", "stdout").decode().split("\0") if entry)
    assert seen["ODD"] == "a=b\nc"
    assert seen.pop(protocol.ENV_JOB).startswith("job:")
    ours = keeper.request("job", "", environment={"ODD": "a=b\nc"})["environment"]
    assert {name for name in seen if name not in ("PWD", "SHLVL", "_", "OLDPWD")} == ours.keys()


def test_a_job_begins_as_from_a_shell(keeper: KeeperProcess, client: Client) -> None:
    """Own session, working directory, empty input, no descriptor or ignored signal of the keeper."""
    command = "pwd; umask; cat; ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status; ps -o sid= -p $$; echo $$"
    keeper.spawn(client, "job", command)
    client.until_ended("job")
    directory, umask, descriptors, ignored, session, pid = keeper.read(client, "job", "stdout").decode().split("\n")[:6]
    assert Path(directory) == keeper.directory
    assert int(umask, 8) == _own_umask()
    assert int(descriptors) == 4, "0, 1, 2 and the one that ls opens"
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0, "the C library has two more for itself"
    assert session.split() == pid.split()


def test_files_precede_command_and_output_is_appended(keeper: KeeperProcess, client: Client) -> None:
    keeper.attempt("job").mkdir(parents=True)
    (keeper.attempt("job") / "stdout").write_text("before\n")
    files = {protocol.PARAMETER_FILE: '{"x": "é"}', "deep/er/file": "y"}
    keeper.spawn(client, "job", "cat $D/parameter.cfg $D/deep/er/file; ls -a $D | grep -c tmp", files=files)
    client.until_ended("job")
    assert keeper.read(client, "job", "stdout").decode() == 'before\n{"x": "é"}y0\n'


def test_the_same_name_is_one_job_also_after_a_reconnection(keeper: KeeperProcess, client: Client) -> None:
    command = "echo once >> $D/starts; read line < $D/gate; exit 4"
    keeper.attempt("job").mkdir(parents=True)
    os.mkfifo(keeper.attempt("job") / "gate")
    first = lasting(keeper.spawn(client, "job", command))
    assert lasting(keeper.spawn(client, "job", command)) == first
    client.close()
    again = keeper.connect()
    assert lasting(keeper.spawn(again, "job", command)) == first
    (keeper.attempt("job") / "gate").write_text("go\n")
    assert again.until_ended("job").jobs["job"]["exit_code"] == 4
    assert keeper.spawn(again, "job", command)["state"] == protocol.ENDED
    assert (keeper.attempt("job") / "starts").read_text() == "once\n"


def test_forgotten_name_is_free_and_running_job_stays(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "done", "exit 0")
    client.until_ended("done")
    keeper.spawn(client, "runs", "exec sleep 1000")
    assert client.ask("forget", names=["done", "runs", "unheard-of"]) == {}
    assert list(client.ask("list")["jobs"]) == ["runs"]
    assert not keeper.state_file("done").exists()
    keeper.spawn(client, "done", "exit 9")
    assert client.until_ended("done").jobs["done"]["exit_code"] == 9


def test_the_state_file_is_claim_process_and_end(keeper: KeeperProcess, client: Client) -> None:
    job = keeper.spawn(client, "job", "exit 0")
    client.until_ended("job")
    claim, main, end = keeper.state_file("job").read_text().splitlines()
    told = {"name", "owner", "tag", "attempt_directory", "boot_id", "grace_s", "keeper_pid", "keeper_start_ticks"}
    assert claim_of(keeper, "job").keys() == told | {"reservation", "home"}
    assert f'"pid": {job["pid"]}' in main
    assert '"exit_code": 0' in end
    assert str(keeper.attempt("job")) in claim
    assert keeper.state_file("job").stat().st_mode & 0o777 == 0o600


def test_missing_working_directory_is_rejected(keeper: KeeperProcess, client: Client) -> None:
    missing = keeper.directory / "code"
    with pytest.raises(RefusedError, match="codeDir") as caught:
        keeper.spawn(client, "job", "exit 0", directory=str(missing))
    assert caught.value.kind == protocol.REJECTED
    assert not keeper.attempt("job").exists()
    assert not keeper.state_file("job").exists()
    missing.mkdir()
    keeper.spawn(client, "job", "exit 0", directory=str(missing))
    assert client.until_ended("job").jobs["job"]["exit_code"] == 0


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside", "", "link/outside"])
def test_file_outside_attempt_is_refused(keeper: KeeperProcess, client: Client, name: str) -> None:
    outside = keeper.directory / "elsewhere"
    outside.mkdir()
    keeper.attempt("job").mkdir(parents=True)
    (keeper.attempt("job") / "link").symlink_to(outside)
    with pytest.raises(RefusedError) as caught:
        keeper.spawn(client, "job", "exit 0", files={"fine": "", name: "text"})
    assert caught.value.kind == protocol.REJECTED
    assert os.listdir(keeper.attempt("job")) == ["link"]
    assert os.listdir(outside) == []
    assert keeper.spawn(client, "job", "exit 0")["name"] == "job"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a/b"),
        ("name", ".hidden"),
        ("name", 7),
        ("command", None),
        ("environment", {"A": 1}),
        ("directory", "relative"),
        ("attempt_directory", "relative"),
        ("files", ["x"]),
        ("grace_s", -1),
        ("from", {"outbox/a": -1}),
    ],
)
def test_a_wrong_argument_is_named(keeper: KeeperProcess, client: Client, field: str, value: object) -> None:
    with pytest.raises(RefusedError, match=repr(field)) as caught:
        client.ask("spawn", **{**keeper.request("job", "exit 0"), field: value})
    assert caught.value.kind == protocol.INVALID
    assert client.ask("list") == {"jobs": {}}


@pytest.mark.parametrize("environment", [{"A=B": "x"}, {"A": "x\0y"}])
def test_invalid_environment_is_refused_without_showing_it(
    keeper: KeeperProcess, client: Client, environment: dict[str, str]
) -> None:
    with pytest.raises(RefusedError) as caught:
        keeper.spawn(client, "job", "exit 0", environment={**environment, "SECRET": "hunter2"})
    assert caught.value.kind == protocol.INVALID
    assert "hunter2" not in caught.value.message
    assert not keeper.state_file("job").exists()


def test_environment_and_command_are_in_no_file_and_no_log(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "true hunter3", environment={"SECRET": "hunter2"})
    client.until_ended("job")
    kept = [path.read_text() for path in (keeper.directory / "keeper").rglob("*") if path.is_file()]
    assert not any("hunter" in text for text in kept)


def test_reading_requests_pass_jobs_that_wait_to_be_started(keeper: KeeperProcess, client: Client) -> None:
    numbers = [client.send("spawn", **keeper.request(f"job-{index}", "exit 0")) for index in range(20)]
    facts = client.send("facts")
    answers: list[int] = []
    while len(answers) < 21:
        number = client.next_message().get("id")
        if number is not None:
            answers.append(number)
    assert [number for number in answers if number != facts] == numbers
    assert answers[-1] != facts


def test_facts_are_the_machine_s(client: Client) -> None:
    facts = client.ask("facts")
    assert facts["cpu_count"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < facts["disk_free_bytes"] < facts["disk_bytes"]
    assert len(facts["load"]) == 3


@pytest.mark.parametrize(
    "name", ["../stdout", "/etc/passwd", "out/../../x", "escape", "inside", "pipe", "outbox", "missing"]
)
def test_only_regular_files_inside_the_attempt_are_read(keeper: KeeperProcess, client: Client, name: str) -> None:
    attempt = keeper.attempt("job")
    attempt.mkdir(parents=True)
    (attempt / "escape").symlink_to("/etc/passwd")
    (attempt / "inside").symlink_to("outbox/file")
    os.mkfifo(attempt / "pipe")
    (attempt / "outbox").mkdir()
    with pytest.raises(RefusedError) as caught:
        keeper.read(client, "job", name)
    assert caught.value.kind == protocol.REJECTED


def test_files_are_read_in_parts(keeper: KeeperProcess, client: Client) -> None:
    attempt = keeper.attempt("job")
    attempt.mkdir(parents=True)
    (attempt / "trial.log").write_bytes(b"0123456789")
    assert keeper.read(client, "job", "trial.log", offset=3, limit=4) == b"3456"
    assert client.ask("read", attempt_directory=str(attempt), file="trial.log", offset=99) == {"data": "", "size": 10}


#: Exits with 3; its own child traces it and takes note of that only when the file `hear` is there.
TRACED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
PR_SET_PTRACER, ANY, PTRACE_SEIZE, WALL = 0x59616D61, ctypes.c_ulong(-1), 0x4206, 0x40000000
libc.prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
main = os.getpid()
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, b"%d" % libc.ptrace(PTRACE_SEIZE, main, None, None))
    while not os.path.exists("hear"):
        time.sleep(0.01)
    os.waitpid(main, WALL)
    os._exit(0)
os._exit(3 if os.read(reading, 9) == b"0" else 4)
"""


@pytest.mark.parametrize("how", ["it listens", "it dies"])
def test_exit_seen_first_by_debugger_is_awaited(keeper: KeeperProcess, client: Client, how: str) -> None:
    (keeper.directory / "traced.py").write_text(TRACED)
    pid = keeper.spawn(client, "job", 'exec "$PYTHON" traced.py')["pid"]
    deadline = time.monotonic() + 20
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.ask("list")["jobs"]["job"]["state"] == protocol.RUNNING
    if how == "it listens":
        (keeper.directory / "hear").touch()
    else:
        (tracer,) = (child for child in psutil.Process(keeper.process.pid).children() if child.pid != pid)
        tracer.kill()
    ended = client.until_ended("job").jobs["job"]
    assert (ended["state"], ended["exit_code"]) == (protocol.ENDED, 3)


@pytest.fixture
def small_disk(keeper: KeeperProcess) -> Iterator[Path]:
    folder = keeper.directory / "attempts"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.machines
def test_a_full_disk_is_unavailable_leaves_nothing_and_passes(
    keeper: KeeperProcess, client: Client, small_disk: Path
) -> None:
    _fill(small_disk / "filler")
    with pytest.raises(RefusedError, match="No space left") as caught:
        keeper.spawn(client, "job", "exit 0", files={"parameter.cfg": "x" * 8192})
    assert caught.value.kind == protocol.UNAVAILABLE
    assert os.listdir(small_disk) == ["filler"]
    assert not keeper.state_file("job").exists()
    (small_disk / "filler").unlink()
    keeper.spawn(client, "job", "exit 0", files={"parameter.cfg": "x" * 8192})
    assert client.until_ended("job").jobs["job"]["exit_code"] == 0


@pytest.mark.machines
def test_end_is_reported_and_stored_on_full_job_disk(keeper: KeeperProcess, client: Client, small_disk: Path) -> None:
    keeper.spawn(client, "job", "cat /dev/zero > $D/filler 2>/dev/null; exit 5")
    assert client.until_ended("job").jobs["job"]["exit_code"] == 5
    assert keeper.kill(signal.SIGTERM) == 0
    assert '"exit_code": 5' in keeper.state_file("job").read_text()


def _fill(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        return


def _own_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
