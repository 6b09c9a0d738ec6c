"""A keeper that may open few files: what waits for processes takes not what is needed for looking."""

import os
import sys
from collections.abc import Iterator

import pytest
from keeper_client_for_tests import KeeperProcess, RefusedError, is_alive, keeper_directory

from trial_runner import protocol

pytestmark = pytest.mark.acceptance

LIMIT = 48
#: Says so when all of them are there, and leaves them to themselves when it is told to end.
STUBBORN = """
for i in $(seq 60); do (trap "" TERM; exec sleep 1000) & done
trap 'exit 3' TERM; echo > $D/there; wait
"""
REPORT = """
read line < $D/gate
for i in 1 2 3; do echo "{\\"type\\":\\"intermediate\\",\\"value\\":$i}" >> $NNI_OUTBOX; done
sleep 1000 & echo $! > $D/left
"""


@pytest.fixture
def keeper() -> Iterator[KeeperProcess]:
    with keeper_directory() as keeper:
        limited = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", sys.executable, "-m", "trial_runner.keeper")
        assert keeper.start(*limited) == b"ready\n"
        yield keeper


def with_pipe(keeper: KeeperProcess, name: str, pipe: str) -> str:
    keeper.attempt(name).mkdir(parents=True, exist_ok=True)
    os.mkfifo(path := keeper.attempt(name) / pipe)
    return str(path)


def test_last_results_arrive_despite_many_stray_processes(keeper: KeeperProcess) -> None:
    client = keeper.connect()
    gate, there = with_pipe(keeper, "reports", "gate"), with_pipe(keeper, "stubborn", "there")
    keeper.spawn(client, "reports", REPORT)
    keeper.spawn(client, "stubborn", STUBBORN)
    with open(there) as pipe:
        pipe.read()
    client.ask("signal", name="stubborn", grace_s=2)
    with open(gate, "w") as pipe:
        pipe.write("go\n")
    heard = client.until_ended("reports", "stubborn")
    assert [len(heard.lines("reports")), heard.jobs["reports"]["exit_code"]] == [3, 0]
    assert heard.jobs["stubborn"]["exit_code"] == 3
    assert not is_alive(int((keeper.attempt("reports") / "left").read_text()))
    assert "Too many open files" not in keeper.log()


def test_more_jobs_than_it_can_watch_are_refused_for_now(keeper: KeeperProcess) -> None:
    client = keeper.connect()
    with pytest.raises(RefusedError) as refused:
        for number in range(LIMIT):
            keeper.spawn(client, f"job{number}", "exec sleep 1000")
    assert refused.value.kind == protocol.UNAVAILABLE and "Too many open files" in refused.value.message
    jobs = client.ask("list")["jobs"]
    assert LIMIT // 4 < len(jobs) < LIMIT and {job["state"] for job in jobs.values()} == {protocol.RUNNING}
    client.ask("signal", name="job0", grace_s=0)
    client.until_ended("job0")
    keeper.spawn(client, "another", "exit 0")
