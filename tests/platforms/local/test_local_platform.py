"""What is peculiar to `local`: folders, process trees, signals, GPUs, results, and a keeper that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper import client
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import DeliveredLines
from nni_manager.platform_kit.testing.observing import (
    accepted,
    insist,
    leftovers,
    new_leftovers,
    running,
    seen,
    unavailable,
)
from tests.platforms.obedient_job import ended
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

FINAL = tuple(state for state in JobState if state.is_final)
#: First kernel that reports the exit code of a process that is not a child.
CODES_OF_ORPHANS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LocalWorld]:
    async with LocalWorld(tmp_path) as world:
        yield world


async def submitted(world: LocalWorld, platform: Platform[Any], spec: JobSpec) -> JobHandle:
    return world.recorder.accept(await insist(world, lambda: platform.submit(spec)))


async def run(world: LocalWorld, command: str, **changes: object) -> tuple[JobHandle, Observation]:
    """Runs one command to its end."""
    async with world.make() as platform:
        handle = await submitted(world, platform, world.command("trial", command, **changes))
        return handle, await seen(world, platform, handle, *FINAL)


def text(handle: JobHandle, name: str) -> str:
    return Path(handle.data, name).read_text()


def is_alive(pid: int) -> bool:
    """Zombies are not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# ---------------------------------------------------------------------------------------------- folders and evidence


async def test_a_trial_runs_in_the_code_directory_and_leaves_files(world: LocalWorld) -> None:
    handle, report = await run(world, "pwd; cat greeting.txt; echo oops >&2; exit 4")
    assert (report.state, report.exit_code, report.signal) == (JobState.FAILED, 4, None)
    assert report.stderr_tail == "oops\n"
    assert report.started_ms is not None and report.ended_ms is not None and report.started_ms <= report.ended_ms
    assert text(handle, protocol.STDOUT_FILE) == f"{world.code}\n{world.code_files['greeting.txt']}"
    assert text(handle, protocol.STDERR_FILE) == "oops\n"
    assert sorted(os.listdir(handle.data)) == ["outbox", "parameter.cfg", "stderr", "stdout"]


async def test_a_job_killed_by_a_signal_names_it(world: LocalWorld) -> None:
    _, report = await run(world, "kill -SEGV $$")
    assert (report.state, report.exit_code, report.signal) == (JobState.FAILED, None, signal.SIGSEGV)


async def test_end_of_stderr_is_reported(world: LocalWorld) -> None:
    _, report = await run(world, "seq 1 5000 >&2; echo the end >&2; exit 1")
    assert len(report.stderr_tail.encode()) <= 2048
    assert report.stderr_tail.endswith("5000\nthe end\n")


async def test_a_code_directory_that_is_gone_is_refused_for_good(world: LocalWorld) -> None:
    async with world.make() as platform:
        missing = str(world.code / "gone")
        spec = world.command("trial", "true", code_directory=missing)
        with pytest.raises(SubmitRejected, match=missing):
            await insist(world, lambda: platform.submit(spec))
        assert not list(world.trials.iterdir())


async def test_many_short_jobs_are_all_seen_to_end(world: LocalWorld) -> None:
    async with world.make() as platform:
        for start in range(0, 60, 6):
            specs = [world.command(f"t{number}", f"exit {number % 3}") for number in range(start, start + 6)]
            handles = await asyncio.gather(*(submitted(world, platform, spec) for spec in specs))
            reports = [await seen(world, platform, handle, *FINAL) for handle in handles]
            assert [report.exit_code for report in reports] == [number % 3 for number in range(start, start + 6)]


# ---------------------------------------------------------------------------------------------- process trees

STRAY = """
import os, sys
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os.write(writer, str(pid).encode())
    os._exit(0)
os.wait()
with open(os.environ["NNI_OUTPUT_DIR"] + "/stray", "wb") as file:
    file.write(os.read(reader, 20))
"""


async def test_stray_without_environment_ends_with_job(world: LocalWorld) -> None:
    (world.code / "stray.py").write_text(STRAY)
    handle, report = await run(world, "python3 -I -S stray.py")
    assert report.state is JobState.SUCCEEDED
    stray = int(text(handle, "stray"))
    assert not is_alive(stray)


async def test_child_in_own_session_is_cancelled_with_job(world: LocalWorld) -> None:
    async with world.make() as platform:
        # `$!` is setsid itself, which becomes the sleep: a background job leads no group, so it need not fork.
        command = 'setsid sleep 1000 & echo $! > "$NNI_OUTPUT_DIR/child"; echo "{}" >> "$NNI_OUTBOX"; wait'
        handle = await submitted(world, platform, world.command("trial", command))
        await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1)
        await platform.cancel([handle], 30.0)
        report = await seen(world, platform, handle, *FINAL)
        assert report.signal == signal.SIGTERM
        assert not is_alive(int(text(handle, "child")))


async def test_cancelled_job_can_end_with_own_exit_code(world: LocalWorld) -> None:
    async with world.make() as platform:
        command = "trap 'exit 7' TERM; echo {} >> $NNI_OUTBOX; while :; do sleep 1000 & wait; done"
        handle = await submitted(world, platform, world.command("trial", command))
        await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1)
        await platform.cancel([handle], 30.0)
        assert (await seen(world, platform, handle, *FINAL)).exit_code == 7


async def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(world: LocalWorld) -> None:
    async with world.make() as platform:
        command = "trap '' TERM; echo {} >> $NNI_OUTBOX; while :; do sleep 1000; done"
        handle = await submitted(world, platform, world.command("trial", command))
        await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1)
        await platform.cancel([handle], 0.3)
        report = await seen(world, platform, handle, *FINAL)
        assert (report.state, report.signal) == (JobState.FAILED, signal.SIGKILL)


# ---------------------------------------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("gpu_number", "callers", "expected"), [(0, "3", ""), (0, None, ""), (None, "3", "3"), (None, None, None)]
)
async def test_zero_gpus_hides_them_and_unset_leaves_them_alone(
    world: LocalWorld, gpu_number: int | None, callers: str | None, expected: str | None
) -> None:
    callers_environment = {"PATH": os.environ["PATH"]} | ({} if callers is None else {protocol.ENV_GPUS: callers})
    command = 'env -0 > "$NNI_OUTPUT_DIR/shown"'
    handle, _ = await run(world, command, gpu_number=gpu_number, caller_environment=callers_environment)
    environment = dict(entry.split("=", 1) for entry in text(handle, "shown").rstrip("\0").split("\0"))
    assert environment.get(protocol.ENV_GPUS) == expected


# ---------------------------------------------------------------------------------------------- results


def is_seamless(chunks: list[DeliveredLines]) -> bool:
    """Each begins where the one before ended, from the beginning on."""
    return [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]


async def test_results_are_stored_before_the_end_is_seen(world: LocalWorld) -> None:
    lines = [f'{{"type":"intermediate","value":"ä{number}"}}' for number in range(3)]
    script = "; ".join(f"echo '{line}' >> $NNI_OUTBOX" for line in lines)
    handle, _ = await run(world, f"{script}; exit 1")
    outbox = (handle.job_name, protocol.MAIN_OUTBOX)
    assert world.recorder.lines(*outbox) == lines
    assert world.recorder.offset(*outbox) == len(text(handle, protocol.MAIN_OUTBOX).encode())
    assert is_seamless(world.recorder.handed_over)


async def test_the_end_waits_for_results_that_are_being_stored(world: LocalWorld) -> None:
    gate = asyncio.Event()
    arrived = asyncio.Event()

    async def hold(_chunk: DeliveredLines) -> None:
        arrived.set()
        await gate.wait()

    world.recorder.before_storing = hold
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.tell(handle, "report 1")
        await arrived.wait()
        await world.end(handle, 0)
        await world.keeper.request("list")  # everything the keeper had to say about the end has come before this
        assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
        gate.set()
        await seen(world, platform, handle, JobState.SUCCEEDED)
        assert world.recorder.lines(handle.job_name, protocol.MAIN_OUTBOX) == ["1"]


async def test_every_outbox_of_a_job_is_read(world: LocalWorld) -> None:
    command = "mkdir $NNI_SYS_DIR/outbox/deep; for n in 1 2; do echo $n > $NNI_SYS_DIR/outbox/deep/$n.jsonl; done"
    handle, _ = await run(world, command)
    assert [world.recorder.lines(handle.job_name, f"outbox/deep/{n}.jsonl") for n in (1, 2)] == [["1"], ["2"]]


async def test_records_of_the_older_sdk_are_results(world: LocalWorld) -> None:
    records = ['{"type": "PERIODICAL", "value": "1"}', '{"type": "FINAL", "value": "2"}']
    frames = "".join(f"ME{len(record) + 1:06}{record}\\n" for record in records)
    handle, _ = await run(world, f"mkdir $NNI_SYS_DIR/.nni; printf '{frames}' > $NNI_SYS_DIR/.nni/metrics")
    assert world.recorder.lines(handle.job_name, protocol.METRICS_FILE) == records


async def test_a_missing_stretch_is_sent_again(world: LocalWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        outbox = (handle.job_name, protocol.MAIN_OUTBOX)
        for number in (1, 2):
            await world.tell(handle, f"report {number}")
        await world.recorder.until_lines(*outbox, 2)
        world.recorder.lose(*outbox)
        await world.tell(handle, "report 3")
        assert await world.recorder.until_lines(*outbox, 3) == ["1", "2", "3"]
        await world.end(handle, 0)
        await seen(world, platform, handle, JobState.SUCCEEDED)
        assert world.recorder.lines(*outbox) == ["1", "2", "3"]


async def test_results_that_could_not_be_stored_come_again(world: LocalWorld) -> None:
    failures = [OSError("no space left"), OSError("no space left")]

    async def fail(_chunk: DeliveredLines) -> None:
        if failures:
            raise failures.pop()

    world.recorder.before_storing = fail
    handle, report = await run(world, "for n in 1 2 3; do echo $n >> $NNI_OUTBOX; done")
    assert report.state is JobState.SUCCEEDED
    assert not failures
    assert world.recorder.lines(handle.job_name, protocol.MAIN_OUTBOX) == ["1", "2", "3"]


async def test_while_storing_is_slow_the_file_is_the_buffer(world: LocalWorld) -> None:
    count, gate, is_full = 400_000, asyncio.Event(), asyncio.Event()

    def handed_over() -> int:
        return sum(len(chunk.lines) for chunk in world.recorder.handed_over)

    async def hold(_chunk: DeliveredLines) -> None:
        if handed_over() > client.MAX_UNSTORED_LINES:
            is_full.set()
        await gate.wait()

    world.recorder.before_storing = hold
    async with world.make() as platform:
        handle = await submitted(world, platform, world.command("trial", f"seq 1 {count} > $NNI_OUTBOX"))
        await ended(world.pid(handle))
        await is_full.wait()
        with pytest.raises(TimeoutError):  # its answer stands in line behind the results that are not taken
            await asyncio.wait_for(world.keeper.request("list"), 0.5)
        assert handed_over() < count / 2
        gate.set()
        await seen(world, platform, handle, JobState.SUCCEEDED)
    assert world.recorder.lines(handle.job_name, protocol.MAIN_OUTBOX) == [str(n) for n in range(1, count + 1)]
    assert is_seamless(world.recorder.handed_over)


async def test_leaving_does_not_wait_for_a_store_that_hangs(world: LocalWorld) -> None:
    arrived = asyncio.Event()

    async def hang(_chunk: DeliveredLines) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async def go_on(_chunk: DeliveredLines) -> None:
        pass

    world.recorder.before_storing = hang
    world.job("a")
    before = leftovers()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.tell(handle, "report 1")
        await arrived.wait()
    assert await new_leftovers(before, 2.0) == frozenset()
    world.recorder.before_storing = go_on
    async with world.make() as platform:
        assert await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1) == ["1"]
        await seen(world, platform, handle, JobState.RUNNING)


# ---------------------------------------------------------------------------------------------- a keeper that is killed


async def test_a_killed_keeper_loses_nothing(world: LocalWorld) -> None:
    async with world.make() as platform:
        good, bad = await running(world, platform, "a"), await running(world, platform, "b")
        for handle in (good, bad):
            await world.tell(handle, "report 1")
            await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1)
        first_keeper = world.keeper_pid
        await world.start_outage()  # so that the next keeper is not there before we look
        await world.kill_keeper(signal.SIGKILL)
        await unavailable(world, lambda: platform.observe([good, bad]))
        await world.tell(good, "report 2")
        await world.end_outage()
        await seen(world, platform, good, JobState.RUNNING)
        await seen(world, platform, bad, JobState.RUNNING)
        assert world.keeper_pid != first_keeper
        await world.tell(good, "report 3")
        await world.end(good, 0)
        await world.end(bad, 3)
        reports = [await seen(world, platform, handle, *FINAL) for handle in (good, bad)]
        assert world.recorder.lines(good.job_name, protocol.MAIN_OUTBOX) == ["1", "2", "3"]
        assert world.recorder.lines(bad.job_name, protocol.MAIN_OUTBOX) == ["1"]
    if CODES_OF_ORPHANS:
        assert [report.exit_code for report in reports] == [0, 3]
    else:  # never guessed
        assert {(report.state, report.exit_code) for report in reports} <= {
            (JobState.LOST, None),
            (JobState.SUCCEEDED, 0),
            (JobState.FAILED, 3),
        }


async def test_exit_code_survives_killed_keeper(world: LocalWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
    await world.tell(handle, "report 1")
    await world.end(handle, 3)
    async with world.make() as platform:
        await seen(world, platform, handle, JobState.FAILED)
    await world.kill_keeper(signal.SIGKILL)
    async with world.make() as platform:
        assert (await seen(world, platform, handle, *FINAL)).exit_code == 3


async def test_a_forgotten_job_frees_its_name(world: LocalWorld) -> None:
    async with world.make() as platform:
        handle = await accepted(world, platform, "a")
        await world.end(handle, 0)
        await seen(world, platform, handle, JobState.SUCCEEDED)
        await platform.forget([handle])
        assert (await platform.observe([handle]))[handle].state is JobState.LOST
        assert await platform.submit(world.job("a")) == handle
        await seen(world, platform, handle, JobState.RUNNING)


# ---------------------------------------------------------------------------------------------- files


@pytest.fixture
def attempt(tmp_path: Path) -> JobHandle:
    folder = tmp_path / "attempt"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "attempt-2").mkdir()
    for path in (folder / "stdout", folder / "deep" / "file", tmp_path / "secret", tmp_path / "attempt-2" / "stdout"):
        path.write_text(path.name)
    (folder / "link-out").symlink_to(tmp_path / "secret")
    (folder / "folder-out").symlink_to(tmp_path)
    (folder / "link-in").symlink_to("deep/file")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    return JobHandle(platform="local", version=1, job_name="job", data=str(folder))


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "deep/../../secret",
        "../attempt-2/stdout",
        "link-out",
        "link-in",
        "folder-out/secret",
        "loop",
        "pipe",
        "deep",
        "",
        ".",
        "missing",
        "stdout/file",
        "a\0b",
        "x" * 5000,
        "/etc/hostname",
    ],
)
async def test_only_regular_files_inside_attempt_are_read(world: LocalWorld, attempt: JobHandle, name: str) -> None:
    with pytest.raises(NotFound, match="attempt"):
        await world.make().read_file(attempt, name, 0, 100)


@pytest.mark.parametrize(
    ("name", "content"), [("stdout", b"stdout"), ("deep/file", b"file"), ("./deep//file", b"file")]
)
async def test_files_of_the_attempt_are_read(world: LocalWorld, attempt: JobHandle, name: str, content: bytes) -> None:
    assert await world.make().read_file(attempt, name, 0, 100) == content


# ---------------------------------------------------------------------------------------------- checkpoints


async def test_checkpoints_are_removed_in_moved_experiment(world: LocalWorld, tmp_path: Path) -> None:
    """A folder that was copied does not cost the original its own."""
    original, copy = (tmp_path / name / "trials" for name in ("original", "copy"))
    for trials in (original, copy):
        (trials / "aaaaa-checkpoint" / "epoch").mkdir(parents=True)
    world.recorder.folder = copy.parent
    handles = [
        JobHandle(platform="local", version=1, job_name=f"nni_exp_e_trial_aaaaa{suffix}", data=f"{original}/aaaaa")
        for suffix in ("", "-2")
    ]
    assert await world.make().remove_checkpoints(handles) == {}
    assert (original / "aaaaa-checkpoint" / "epoch").is_dir() and not list(copy.iterdir())


async def test_one_checkpoint_that_cannot_be_removed_keeps_no_other(world: LocalWorld, tmp_path: Path) -> None:
    trials = tmp_path / "trials"
    too_long = "a" * 300  # no file system takes that name, whatever the user's rights
    handles = []
    for name in ("bbbbb", too_long, "ccccc"):
        handles.append(JobHandle(platform="local", version=1, job_name=f"nni_exp_e_trial_{name}"))
        if name != too_long:
            (trials / f"{name}-checkpoint").mkdir()
    world.recorder.folder = tmp_path
    stays = await world.make().remove_checkpoints(handles)
    assert list(stays) == [handles[1]] and "cannot be removed" in stays[handles[1]]
    assert not list(trials.iterdir())


async def test_a_platform_that_is_being_connected_is_waited_for(world: LocalWorld) -> None:
    async with world.make() as platform:
        handle = await submitted(world, platform, world.command("trial", "sleep 60"))
    async with world.make() as platform:  # as after a start of the daemon: nobody says that the keeper is away
        assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
