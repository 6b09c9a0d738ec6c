"""A keeper's folder is deleted, moved or put back while it runs."""

import shutil
import subprocess
import time

import pytest
from keeper_client_for_tests import TIMEOUT_S, Client, KeeperProcess, RefusedError, is_alive

from trial_runner import protocol

pytestmark = pytest.mark.acceptance


def _pid(keeper: KeeperProcess, client: Client, command: str = "exec sleep 1000") -> int:
    """Of a new job named `job`."""
    return int(keeper.spawn(client, "job", command, grace_s=0.2)["pid"])


def test_deleted_folder_ends_the_keeper_and_its_jobs(keeper: KeeperProcess, client: Client) -> None:
    pid = _pid(keeper, client)
    shutil.rmtree(keeper.directory / "keeper")
    client.close()
    assert keeper.wait() == 0
    assert not is_alive(pid)
    assert not keeper.socket_path.exists()


def test_client_of_a_new_folder_of_the_same_name_is_not_served(keeper: KeeperProcess, client: Client) -> None:
    pid = _pid(keeper, client, "trap '' TERM; while true; do sleep 0.1; done")
    client.close()
    _until_logged(keeper, "connection closed")
    shutil.rmtree(keeper.directory / "keeper")
    newcomer = keeper.connect()
    with pytest.raises((EOFError, OSError)):
        newcomer.ask("hello")
    first = keeper.process
    assert keeper.start() == b"ready\n", "another keeper serves the new folder"
    keeper.process, second = first, keeper.process
    assert keeper.wait() == 0
    assert not is_alive(pid)
    keeper.process = second
    assert second is not None
    assert keeper.connect().ask("hello")["pid"] == second.pid, "the first left the second's socket alone"


def test_keeper_of_deleted_folder_ends_after_refusing_job(keeper: KeeperProcess, client: Client) -> None:
    client.ask("hello")
    shutil.rmtree(keeper.directory / "keeper")
    with pytest.raises(RefusedError, match="folder was deleted"):
        keeper.spawn(client, "other", "true")
    begun_s = time.monotonic()
    assert keeper.wait() == 0
    assert time.monotonic() - begun_s < 10, "the next keeper takes the job"


def test_keeper_of_deleted_folder_keeps_jobs(keeper: KeeperProcess, client: Client) -> None:
    _pid(keeper, client)
    shutil.rmtree(keeper.directory / "keeper")
    with pytest.raises(RefusedError, match="folder was deleted") as refused:
        keeper.spawn(client, "other", "true")
    assert refused.value.kind == protocol.UNAVAILABLE
    assert "under another keeper, as soon as those that run here have ended" in str(refused.value)
    assert not keeper.attempt("other").exists()
    client.ask("signal", name="job", grace_s=0)
    assert client.until_ended("job").jobs["job"]["signal"] is not None
    client.close()
    assert keeper.wait() == 0, "no write to a file that is gone is owed"


def test_running_job_of_lost_files_is_taken_over(keeper: KeeperProcess, client: Client) -> None:
    pid = _pid(keeper, client)
    _lose_files(keeper, client)
    again = keeper.connect()
    assert keeper.spawn(again, "job", "exec sleep 1000", grace_s=0.2)["pid"] == pid, "not started a second time"
    again.ask("signal", name="job", grace_s=0)
    assert again.until_ended("job").jobs["job"]["signal"] is not None and not is_alive(pid)


def test_ended_job_of_lost_files_is_lost_and_not_run_again(keeper: KeeperProcess, client: Client) -> None:
    command = f"echo once >> {keeper.directory}/runs"
    keeper.spawn(client, "job", command)
    client.until_ended("job")
    _lose_files(keeper, client)
    again = keeper.connect()
    keeper.spawn(again, "job", command)
    job = again.until_ended("job").jobs["job"]
    assert job["state"] == protocol.LOST and "has lost its files" in job["message"]
    assert (keeper.directory / "runs").read_text() == "once\n"


def _lose_files(keeper: KeeperProcess, client: Client) -> None:
    """Replaces the keeper with one that has no state files."""
    client.close()
    keeper.kill()
    for file in (keeper.directory / "keeper" / "jobs").iterdir():
        file.unlink()
    assert keeper.start() == b"ready\n"


def test_a_moved_folder_is_served_on(keeper: KeeperProcess, client: Client) -> None:
    pid = _pid(keeper, client)
    moved = keeper.directory / "elsewhere"
    (keeper.directory / "keeper").rename(moved)
    client.close()
    assert keeper.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        keeper.process.wait(0.5)  # longer than it lingers
    assert is_alive(pid)
    client = keeper.connect()
    keeper.spawn(client, "another", "true")
    client.until_ended("another")
    assert len((moved / "jobs" / "another.jsonl").read_text().splitlines()) == 3
    moved.rename(keeper.directory / "keeper")


def test_jobs_of_a_folder_that_was_put_back_run_on(keeper: KeeperProcess, client: Client) -> None:
    pid = _pid(keeper, client)
    copy = keeper.directory / "copy"
    shutil.copytree(keeper.directory / "keeper", copy)
    shutil.rmtree(keeper.directory / "keeper")
    copy.rename(keeper.directory / "keeper")
    first = keeper.process
    assert keeper.start() == b"ready\n"
    client.close()
    again = keeper.connect()
    assert again.ask("list")["jobs"]["job"]["pid"] == pid
    assert again.ask("list")["jobs"]["job"]["state"] == protocol.RUNNING
    again.ask("follow", jobs={"job": {}})
    again.ask("signal", name="job", grace_s=0)
    again.until_ended("job")
    assert first is not None
    assert first.wait(TIMEOUT_S) == 0


def _until_logged(keeper: KeeperProcess, words: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while words not in keeper.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
