"""The order in which a job ends."""

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from trial_runner import processes
from trial_runner.keeper.jobs.ending import Ending
from trial_runner.keeper.jobs.files import Claim, MainProcess
from trial_runner.keeper.jobs.job import Job, Jobs
from trial_runner.loop import Loop
from trial_runner.processes import Exit

pytestmark = pytest.mark.unit


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Its main process is a child of ours, which ends with exit code 7."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], os.environ)
    monkeypatch.setattr(processes, "own_children", lambda: [pid])
    stat = processes.read_stat(pid)
    assert stat is not None
    job = Job(Claim("job", "", "variable:1", "/nowhere", "", 1.0), lambda _: None)
    job.main, job.is_child, job.pidfd = MainProcess(pid, stat.start_ticks, 0), True, processes.open_pidfd(pid)
    yield job
    processes.reap(pid)


def test_the_end_is_written_down_while_the_kernel_still_knows_it(job: Job) -> None:
    """A keeper that is killed in between finds it in the state file, or with the process."""
    assert job.main is not None
    pid, errors, written = job.main.pid, [], []
    saving = SimpleNamespace(save=lambda job: written.append((processes.peek_exit(pid), job.end.exit_code)))
    jobs = Jobs()
    jobs.add(job)
    loop = Loop(errors.append)
    Ending(loop, jobs, saving).watch(job)  # type: ignore[arg-type]
    while not job.is_over and not errors:
        loop.run_turn()
    assert (errors, written) == ([], [(Exit(7, None), 7)])
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
