"""What a new keeper makes of the jobs of one that was killed: the truth, or LOST."""

import json
import os
import platform
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from pathlib import Path

import pytest
from keeper_client_for_tests import Client, Heard, KeeperProcess, claim_of, is_alive, lasting

from trial_runner import processes, protocol

pytestmark = pytest.mark.acceptance

_PR_SET_CHILD_SUBREAPER = 36
_RLIMIT_RTTIME = 15
_SLEEP = "exec sleep 1000"


@pytest.fixture
def orphanage() -> Iterator[None]:
    """Orphans come to this process, which reaps none before the end of the test."""
    libc = CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for pid in processes.children(os.getpid()):
        processes.reap(pid)


@pytest.mark.usefixtures("orphanage")
def test_next_keeper_lists_reservation_of_job(keeper: KeeperProcess, client: Client) -> None:
    reservation = {"machine": "a", "places": [0, 2], "share": 1}
    assert keeper.spawn(client, "job", _SLEEP, reservation=reservation)["reservation"] == reservation
    assert keeper.spawn(client, "other", _SLEEP)["reservation"] == {}
    keeper.kill()
    assert keeper.start() == b"ready\n"
    jobs = keeper.connect().ask("list")["jobs"]
    assert (jobs["job"]["reservation"], jobs["other"]["reservation"]) == (reservation, {})


@pytest.mark.usefixtures("orphanage")
def test_killed_keeper_loses_no_lines_and_no_exit_codes(keeper: KeeperProcess, client: Client) -> None:
    """Half of the jobs end without a keeper, half afterwards."""
    names = [f"job-{index}" for index in range(8)]
    gates = [_gate(keeper, name) for name in names]
    command = "for i in $(seq 50); do echo $i; done > $NNI_OUTBOX; read line < $D/gate; echo end >> $NNI_OUTBOX"
    jobs = {
        name: keeper.spawn(client, name, f"{command}; {_end(index)}; exit {index}") for index, name in enumerate(names)
    }
    heard = Heard()
    while sum(len(heard.lines(name)) for name in names) < 8 * 50:
        heard.add(client.next_message())
    keeper.kill()
    for index in range(4):
        gates[index].write_text("go\n")
        os.waitid(os.P_PID, jobs[names[index]]["pid"], os.WEXITED | os.WNOWAIT)
    assert keeper.start() == b"ready\n"
    again = keeper.connect()
    assert {name: job["pid"] for name, job in again.ask("list")["jobs"].items()} == {
        name: jobs[name]["pid"] for name in names
    }
    offsets = {name: {protocol.MAIN_OUTBOX: heard.offsets[name, protocol.MAIN_OUTBOX]} for name in names}
    assert again.ask("follow", jobs=offsets)["unknown"] == []
    for index in range(4, 8):
        gates[index].write_text("go\n")
    rest = again.until_ended(*names)
    assert [rest.lines(name) for name in names] == [["end"]] * 8
    assert {rest.jobs[name]["state"] for name in names} == {protocol.ENDED}
    assert [rest.jobs[name]["exit_code"] for name in names[:7]] == list(range(7))
    assert rest.jobs["job-7"]["signal"] == signal.SIGKILL


@pytest.mark.usefixtures("orphanage")
def test_exit_code_of_a_job_reaped_elsewhere_is_known(keeper: KeeperProcess, client: Client) -> None:
    """Linux 6.15 and newer tell it to a keeper that had the process open before; under others the job is LOST."""
    gate = _gate(keeper, "job")
    pid = keeper.spawn(client, "job", "read line < $D/gate; exit 7")["pid"]
    keeper.kill()
    keeper.start()
    again = keeper.connect()
    again.ask("follow", jobs={"job": {}})
    assert keeper.process is not None
    keeper.process.send_signal(signal.SIGSTOP)
    gate.write_text("go\n")
    os.waitpid(pid, 0)
    keeper.process.send_signal(signal.SIGCONT)
    ended = again.until_ended("job").jobs["job"]
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    expected = (protocol.ENDED, 7) if release >= (6, 15) else (protocol.LOST, None)
    assert (ended["state"], ended["exit_code"]) == expected


def test_unrecorded_job_is_found_by_tag(keeper: KeeperProcess, client: Client) -> None:
    """The keeper died between the start and the second line of the state file."""
    job = keeper.spawn(client, "job", _SLEEP)
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: lines[:1])
    keeper.start()
    again = keeper.connect()
    found = again.ask("follow", jobs={"job": {}})["jobs"]["job"]
    assert (found["state"], found["pid"]) == (protocol.RUNNING, job["pid"])
    assert abs(found["started_ms"] - job["started_ms"]) < 1000
    assert len(keeper.state_file("job").read_text().splitlines()) == 2
    again.ask("signal", name="job", grace_s=20)
    again.until_ended("job")
    assert not is_alive(job["pid"])


@pytest.mark.true_start  # it waits for the keeper as its parent
@pytest.mark.usefixtures("orphanage")
@pytest.mark.parametrize("was_started", [True, False])
def test_dead_keeper_with_tag_is_not_main_process(keeper: KeeperProcess, client: Client, was_started: bool) -> None:
    """It leads a session, is older than its children, and is not reaped."""
    pid = keeper.spawn(client, "job", _SLEEP)["pid"]
    with _killed_while_bearing(keeper, claim_of(keeper, "job")["tag"]):
        _rewrite(keeper, "job", lambda lines: lines[:1])
        if not was_started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        keeper.start()
        if was_started:
            found = keeper.connect().ask("list")["jobs"]["job"]
            assert (found["state"], found["pid"]) == (protocol.RUNNING, pid)
        else:
            assert _end_of(keeper, "job") == {"state": protocol.LOST, "exit_code": None, "signal": None}


def test_a_claim_that_names_no_keeper_is_adopted(keeper: KeeperProcess, client: Client) -> None:
    """An earlier version made it."""
    pid = keeper.spawn(client, "job", _SLEEP)["pid"]
    keeper.kill()
    claim = {name: value for name, value in claim_of(keeper, "job").items() if not name.startswith("keeper_")}
    _rewrite(keeper, "job", lambda _: [json.dumps(claim)])
    keeper.start()
    found = keeper.connect().ask("list")["jobs"]["job"]
    assert (found["state"], found["pid"]) == (protocol.RUNNING, pid)


def test_unknown_fields_of_a_claim_are_ignored(keeper: KeeperProcess, client: Client) -> None:
    """Its job runs: dropping the claim as incomplete would leave the job without a keeper."""
    job = keeper.spawn(client, "job", _SLEEP)
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: [line.replace("{", '{"later": [1], ', 1) for line in lines])
    keeper.start()
    found = keeper.connect().ask("list")["jobs"]["job"]
    assert (found["state"], found["pid"]) == (protocol.RUNNING, job["pid"])


def test_a_claim_without_any_process_is_lost(keeper: KeeperProcess, client: Client) -> None:
    """The keeper died before it noted the process, which has ended since."""
    keeper.spawn(client, "job", "exit 0")
    client.until_ended("job")
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: lines[:1])
    keeper.start()
    assert _end_of(keeper, "job")["state"] == protocol.LOST
    keeper.kill()
    keeper.start()
    assert _end_of(keeper, "job")["state"] == protocol.LOST, "and stays so"


def test_unstarted_claim_is_dropped_and_name_is_free(keeper: KeeperProcess, client: Client) -> None:
    """The keeper died between the claim and the start; the repeated request is not another try."""
    keeper.spawn(client, "job", "exit 0")
    client.until_ended("job")
    for name in (protocol.STDOUT_FILE, protocol.STDERR_FILE):
        (keeper.attempt("job") / name).unlink()
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: lines[:1])
    keeper.start()
    again = keeper.connect()
    assert again.ask("follow", jobs={"job": {}})["unknown"] == ["job"]
    keeper.spawn(again, "job", "exit 4")
    assert again.until_ended("job").jobs["job"]["exit_code"] == 4


def test_an_empty_claim_is_dropped_and_its_name_is_free(keeper: KeeperProcess, client: Client) -> None:
    keeper.kill()
    keeper.state_file("job").write_text('{"name": "jo')
    keeper.start()
    again = keeper.connect()
    assert again.ask("follow", jobs={"job": {}})["unknown"] == ["job"]
    keeper.spawn(again, "job", "exit 4")
    assert again.until_ended("job").jobs["job"]["exit_code"] == 4


def test_reused_pid_is_lost_after_job_tree_has_ended(keeper: KeeperProcess, client: Client) -> None:
    command = (
        f"(env -i setsid /bin/bash -c 'echo $$ >> {keeper.attempt('job')}/outbox/main.jsonl; {_SLEEP}' &); {_SLEEP}"
    )
    pid = keeper.spawn(client, "job", command)["pid"]
    stray = int(client.until_lines("job", 1).lines("job")[0])
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: [lines[0], json.dumps({**json.loads(lines[1]), "start_ticks": 7})])
    keeper.start()
    assert _end_of(keeper, "job") == {"state": protocol.LOST, "exit_code": None, "signal": None}
    assert not is_alive(stray)
    assert not is_alive(pid), "it bears the tag, so it is one of the job's all the same"


def test_process_with_reused_pid_is_not_killed(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "exit 0")
    client.until_ended("job")
    keeper.kill()
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        main = json.dumps({"pid": innocent.pid, "start_ticks": 7, "started_ms": 1})
        _rewrite(keeper, "job", lambda lines: [lines[0], main])
        keeper.start()
        assert _end_of(keeper, "job")["state"] == protocol.LOST
        assert innocent.poll() is None
        innocent.kill()


def test_a_job_of_an_earlier_boot_is_lost(keeper: KeeperProcess, client: Client) -> None:
    pid = keeper.spawn(client, "job", _SLEEP)["pid"]
    keeper.kill()
    _rewrite(keeper, "job", lambda lines: [json.dumps({**json.loads(lines[0]), "boot_id": "earlier"}), lines[1]])
    keeper.start()
    assert _end_of(keeper, "job")["state"] == protocol.LOST
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("orphanage")
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, "ended after the keeper of its machine had died"),
        ({"boot_id": "earlier"}, "restarted before it had ended"),
        ({"start_ticks": -1}, "restarted before it had ended"),
        (None, "the next one found no process of it"),
        ({"keeper_start_ticks": -1, "pid": None}, "restarted before it had ended"),
    ],
)
def test_lost_job_states_reason(
    keeper: KeeperProcess, client: Client, changed: dict[str, object] | None, sentence: str
) -> None:
    """`changed`: in its state file; None: that has nothing of its main process, as where its `pid` is None. A container
    that is restarted keeps its boot id, and has another first process."""
    pid = keeper.spawn(client, "job", f"echo 1 > $NNI_OUTBOX; {_SLEEP}")["pid"]
    client.until_lines("job", 1)
    keeper.kill()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    def change(lines: list[str]) -> list[str]:
        has_main = changed is not None and "pid" not in changed
        entries = [json.loads(line) for line in lines[: 2 if has_main else 1]]
        return [json.dumps({name: (changed or {}).get(name, entry[name]) for name in entry}) for entry in entries]

    _rewrite(keeper, "job", change)
    for _ in range(2):
        keeper.start()
        again = keeper.connect()
        again.ask("follow", jobs={"job": {}})
        job = again.until_ended("job").jobs["job"]
        assert job["state"] == protocol.LOST and sentence in job["message"]
        keeper.kill()


@pytest.mark.usefixtures("orphanage")
def test_strays_of_an_adopted_job_are_ended_with_it(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    stray = f"/bin/bash -c 'echo $$ >> {keeper.attempt('job')}/outbox/main.jsonl; {_SLEEP}'"
    keeper.spawn(client, "job", f"(env -i setsid {stray} &); (setsid {stray} &); read line < $D/gate; exit 5")
    strays = [int(line) for line in client.until_lines("job", 2).lines("job")]
    keeper.kill()
    keeper.start()
    again = keeper.connect()
    again.ask("follow", jobs={"job": {}})
    gate.write_text("go\n")
    assert again.until_ended("job").jobs["job"]["exit_code"] == 5
    assert not any(map(is_alive, strays))


def test_an_adopted_job_is_stopped_with_its_strays(keeper: KeeperProcess, client: Client) -> None:
    stray = f"/bin/bash -c 'echo $$ >> {keeper.attempt('job')}/outbox/main.jsonl; {_SLEEP}'"
    pid = keeper.spawn(client, "job", f"(env -i setsid {stray} &); {_SLEEP}")["pid"]
    pids = [pid, *(int(line) for line in client.until_lines("job", 1).lines("job"))]
    keeper.kill()
    keeper.start()
    again = keeper.connect()
    again.ask("follow", jobs={"job": {}})
    again.ask("signal", name="job", grace_s=20)
    again.until_ended("job")
    assert not any(map(is_alive, pids))


def test_ended_jobs_are_known_to_the_next_keeper(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "echo 1 > $NNI_OUTBOX; echo trouble >&2; exit 6")
    before = lasting(client.until_ended("job").jobs["job"])
    keeper.kill(signal.SIGTERM)
    keeper.start()
    again = keeper.connect()
    assert lasting(again.ask("follow", jobs={"job": {}})["jobs"]["job"]) == before
    heard = again.until_ended("job")
    assert heard.lines("job") == ["1"]
    assert lasting(heard.jobs["job"]) == before
    again.ask("forget", names=["job"])
    assert again.ask("list") == {"jobs": {}}


def test_sigterm_ends_the_keeper_at_once_and_leaves_jobs_running(keeper: KeeperProcess, client: Client) -> None:
    pid = keeper.spawn(client, "job", _SLEEP)["pid"]
    assert keeper.kill(signal.SIGTERM) == 0
    assert is_alive(pid)
    assert not keeper.socket_path.exists()
    keeper.start()
    assert keeper.connect().ask("list")["jobs"]["job"]["pid"] == pid


def _end(index: int) -> str:
    return "kill -9 $$" if index == 7 else ":"


def _gate(keeper: KeeperProcess, name: str) -> Path:
    gate = keeper.attempt(name) / "gate"
    gate.parent.mkdir(parents=True)
    os.mkfifo(gate)
    return gate


def _rewrite(keeper: KeeperProcess, name: str, change: object) -> None:
    path = keeper.state_file(name)
    lines = change(path.read_text().splitlines())  # type: ignore[operator]
    path.write_text("".join(line + "\n" for line in lines))


@contextmanager
def _killed_while_bearing(keeper: KeeperProcess, tag: str) -> Iterator[None]:
    """Its process stays a zombie meanwhile."""
    dead = keeper.process
    assert dead is not None
    kind, _, value = tag.partition(":")
    limit = {"rttime": _RLIMIT_RTTIME, "msgqueue": resource.RLIMIT_MSGQUEUE}[kind]
    resource.prlimit(dead.pid, limit, (int(value), resource.prlimit(dead.pid, limit)[1]))
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    yield
    assert not is_alive(dead.pid)
    dead.wait()


def _end_of(keeper: KeeperProcess, name: str) -> dict[str, object]:
    client = keeper.connect()
    client.ask("follow", jobs={name: {}})
    job = client.until_ended(name).jobs[name]
    assert bool(job["message"]) == (job["state"] == protocol.LOST), "what is lost says what became of it"
    return {field: job[field] for field in ("state", "exit_code", "signal")}
