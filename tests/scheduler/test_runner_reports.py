"""Posts of runners: observations, results and logs that are stored, refusals, and answers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sqlite3
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import AttemptDecided, InvalidInput, NotFound, StoreUnavailable, TooBusy, VersionRefused
from nni_manager.domain.job import JobState
from nni_manager.scheduler.experiments import runner_reports
from nni_manager.scheduler.experiments.runner_reports import RunnerIdentity
from nni_manager.scheduler.turns import observer
from tests.api.world import MemoryPlatform
from tests.scheduler.runner_world import OUTBOX, RunnerWorld, lines_of, make_runner_world
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

EXIT_0 = {"exitCode": 0, "signal": None, "stderrTail": "", "startedMs": None, "endedMs": None, "outboxes": {}}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunnerWorld]:
    async with make_runner_world(tmp_path, monkeypatch) as made:
        yield made


async def test_the_life_of_a_runner(world: RunnerWorld) -> None:
    await world.register()
    assert json.loads(await world.reports.record(world.runner))["parameters"] == {"x": 0.5}
    assert await world.reports.started(world.runner, None) is False
    lines, size = lines_of(0.25, 0.5)
    assert await world.reports.lines(world.runner, OUTBOX, 0, size, lines) == size
    assert await world.reports.must_stop(world.runner) is False
    word = {**EXIT_0, "outboxes": {OUTBOX: size}}
    assert await world.reports.exited(world.runner, word) is False
    trial = await world.ended()
    assert (trial["status"], trial["intermediates"], trial["lastValue"]) == ("SUCCEEDED", 2, 0.5)
    (attempt,) = trial["attempts"]
    assert (attempt["channel"], attempt["runnerVersion"]) == ("push", protocol.VERSION)
    assert attempt["runnerExit"] == word


async def test_registration_is_one_database_write(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempt is looked up where the greeting is stored."""
    reads = list[Callable[..., object]]()
    read = world.experiment.database.read
    with monkeypatch.context() as patch:
        patch.setattr(world.experiment.database, "read", lambda function: reads.append(function) or read(function))
        await world.register()
    assert [one.__module__ for one in reads if one.__module__ != observer.__name__] == []


async def test_the_end_waits_for_the_last_results(world: RunnerWorld) -> None:
    await world.register()
    lines, size = lines_of(1, 2)
    await world.reports.exited(world.runner, {**EXIT_0, "outboxes": {OUTBOX: size}})
    assert (await world.trial())["endedMs"] is None
    assert await world.reports.lines(world.runner, OUTBOX, 0, size, lines) == size
    trial = await world.ended()
    assert (trial["status"], trial["intermediates"]) == ("SUCCEEDED", 2)


async def test_results_are_stored_once_and_in_order(world: RunnerWorld) -> None:
    await world.register()
    (first, a), (second, b) = lines_of(1, 2), lines_of(3)
    assert await world.reports.lines(world.runner, OUTBOX, a, a + b, second) == 0, "something before it is missing"
    assert await world.reports.lines(world.runner, OUTBOX, 0, a, first) == a
    assert await world.reports.lines(world.runner, OUTBOX, 0, a, first) == a, "a repeat"
    assert await world.reports.lines(world.runner, OUTBOX, a, a + b, second) == a + b
    assert await world.reports.lines(world.runner, "outbox/other.jsonl", 0, b, second) == b
    assert await world.reports.offsets(world.runner) == {OUTBOX: a + b, "outbox/other.jsonl": b}
    assert (await world.trial())["intermediates"] == 4


async def test_a_container_that_was_replaced_is_fenced_off(world: RunnerWorld) -> None:
    old, new = (dataclasses.replace(world.runner, container=letter * 16) for letter in "ab")
    await world.reports.register(old, protocol.VERSION, "push", {})
    (first, a), (second, b) = lines_of(1, 2), lines_of(7)
    assert await world.reports.lines(old, OUTBOX, 0, a, first) == a
    await world.reports.register(new, protocol.VERSION, "push", {})
    for refused in (
        world.reports.lines(old, OUTBOX, a, a + b, second),
        world.reports.write_log(old, "stdout", 0, b"old"),
        world.reports.must_stop(old),
        world.reports.exited(old, EXIT_0),
        world.reports.register(old, protocol.VERSION, "push", {}),
    ):
        with pytest.raises(AttemptDecided, match="a newer container"):
            await refused
    assert await world.reports.offsets(new) == {OUTBOX: 0}, "its file is another"
    assert await world.reports.lines(new, OUTBOX, 0, b, second) == b
    await world.reports.exited(new, {**EXIT_0, "outboxes": {OUTBOX: b}})
    trial = await world.ended()
    assert (trial["status"], trial["intermediates"], trial["message"]) == (
        "SUCCEEDED",
        3,
        "it reported no final result, only 3 intermediate",
    )
    assert (trial["attempts"][0]["containers"], trial["attempts"][0]["epoch"]) == (2, 1)


async def test_log_posts_do_not_register_a_container(world: RunnerWorld) -> None:
    reporter = dataclasses.replace(world.runner, container="a" * 16)
    await world.reports.register(reporter, protocol.VERSION, "push", {})
    await world.reports.register(world.runner, protocol.VERSION, "push")
    assert await world.reports.write_log(world.runner, "stdout", 0, b"worker", "node-1") == 6
    assert await world.reports.must_stop(reporter) is False


async def test_trial_message_names_overlong_line(world: RunnerWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.register()
    size = 2 * protocol.MAX_RECORD
    assert await world.reports.lines(world.runner, OUTBOX, 0, size, [protocol.TOO_LONG]) == size
    await world.reports.exited(world.runner, {**EXIT_0, "outboxes": {OUTBOX: size}})
    trial = await world.ended()
    assert trial["status"] == "SUCCEEDED" and "longer than the maximum of 4194304 bytes" in trial["message"]
    assert "line 1 is longer than the maximum of 4194304 bytes; report less at once" in caplog.text


async def test_a_success_whose_results_did_not_come_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with make_runner_world(tmp_path, monkeypatch, metricGrace="0.1s") as world:
        await world.register()
        await world.reports.exited(world.runner, {**EXIT_0, "outboxes": {OUTBOX: 40}})
        trial = await world.ended()
    assert trial["status"] == "SUCCEEDED" and f"0 of 40 bytes of {OUTBOX} arrived in time" in trial["message"]


async def test_outbox_name_that_is_not_utf8_is_escaped(world: RunnerWorld) -> None:
    await world.register()
    (lines, size), job = lines_of(1), world.runner.job_name
    await world.experiment.messages.deliver(job, "outbox/\udce9", 0, size, lines)
    ended = Observation(state=JobState.SUCCEEDED, exit_code=0)
    await world.experiment.messages.deliver(job, "outbox/\udce9", size, 2 * size, lines, ended)
    await world.reports.exited(world.runner, EXIT_0)
    trial = await world.ended()
    assert (trial["status"], trial["intermediates"]) == ("SUCCEEDED", 2)


async def test_orders_reach_the_runner(world: RunnerWorld) -> None:
    await world.register()
    await world.world.commands.kill_trial(world.id, world.runner.trial_id)
    assert await world.reports.must_stop(world.runner)
    assert (await world.reports.register(world.runner, protocol.VERSION, "push")).must_stop, (
        "a command that has not started"
    )
    assert (await world.reports.attempt(world.runner)).grace_s == 5.0
    assert await world.reports.started(world.runner, None)
    assert await world.reports.exited(world.runner, {**EXIT_0, "exitCode": None, "signal": 15})
    assert (await world.ended())["status"] == "USER_CANCELED"


# ------------------------------------------------------------------------------------------------ refusals


async def test_a_decided_attempt_is_fenced_off(world: RunnerWorld) -> None:
    await world.register()
    await world.reports.exited(world.runner, EXIT_0)
    await world.ended()
    runner, lines = world.runner, ["{}"]
    for call in (
        world.reports.register(runner, protocol.VERSION, "push"),
        world.reports.record(runner),
        world.reports.started(runner, 1),
        world.reports.exited(runner, EXIT_0),
        world.reports.lines(runner, OUTBOX, 0, 3, lines),
        world.reports.offsets(runner),
        world.reports.must_stop(runner),
        world.reports.code(runner),
    ):
        with pytest.raises(AttemptDecided, match=f"attempt 1 of trial {runner.trial_id} is closed"):
            await call
    assert not (world.folder() / "stdout").exists()


async def test_logs_after_end_are_not_heartbeats(world: RunnerWorld) -> None:
    """Each job would be remembered for good, and be looked at in every turn."""
    await world.register()
    assert set(world.experiment.loop.heartbeats.silence_ms()[1]) == {world.runner.job_name}
    await world.reports.exited(world.runner, EXIT_0)
    await world.ended()
    assert await world.reports.write_log(world.runner, "stdout", 0, b"late") == 4
    assert world.experiment.loop.heartbeats.silence_ms()[1] == {}


async def test_unknown_attempt_is_not_found(world: RunnerWorld) -> None:
    with pytest.raises(NotFound):
        await world.reports.record(RunnerIdentity(experiment_id="missing", trial_id="aaaaa", attempt=1))
    with pytest.raises(NotFound):
        await world.reports.record(RunnerIdentity(experiment_id=world.id, trial_id=world.runner.trial_id, attempt=2))


async def test_posts_to_stopped_and_to_unopened_experiments(world: RunnerWorld) -> None:
    await world.register()
    await world.reports.exited(world.runner, EXIT_0)
    await world.ended()
    await world.world.commands.stop(world.id)
    with pytest.raises(AttemptDecided, match="is stopped"):
        await world.reports.must_stop(world.runner)
    await world.world.commands.resume(world.id)
    world.world.supervisor._open.pop(world.id)  # as a daemon that has just started
    with pytest.raises(StoreUnavailable, match="is not open yet; try again"):
        await world.reports.must_stop(world.runner)


# ------------------------------------------------------------------------------------------------ versions


@pytest.mark.parametrize(("version", "named"), [("0.5.1", "0.5.1"), (None, "no version"), ("0.60", "0.60")])
async def test_a_version_that_does_not_fit(world: RunnerWorld, version: str | None, named: str) -> None:
    with pytest.raises(VersionRefused) as refusal:
        await world.reports.register(world.runner, version, "push")
    trial = await world.ended()
    assert (trial["status"], trial["reason"], trial["message"]) == ("FAILED", "VERSION_MISMATCH", str(refusal.value))
    assert named in trial["message"] and protocol.VERSION in trial["message"]
    shown = await _experiment(world)
    assert (shown["status"], shown["errors"]) == ("ERROR", [str(refusal.value)])


async def test_runner_without_a_version_is_refused(world: RunnerWorld) -> None:
    with pytest.raises(VersionRefused, match="names no version"):
        await world.reports.lines(world.runner, OUTBOX, 0, 3, ["{}"])
    assert (await world.ended())["reason"] == "VERSION_MISMATCH"


@pytest.mark.parametrize("fields", [{"versionCheck": False}, {"debug": True}])
async def test_the_check_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    async with make_runner_world(tmp_path, monkeypatch, **fields) as world:
        await world.reports.register(world.runner, "0.5.1", "push")
        other = await world.add_trial()
        assert await world.reports.must_stop(other) is False, "one that names none"
        shown = [(await world.trial(runner))["attempts"][0]["runnerVersion"] for runner in (world.runner, other)]
        assert shown == ["0.5.1", "unknown"]


async def test_a_refusal_is_not_overwritten_by_the_end_it_causes(world: RunnerWorld) -> None:
    with pytest.raises(VersionRefused):
        await world.reports.register(world.runner, "0.5.1", "push")
    exit_78 = Observation(state=JobState.FAILED, exit_code=78)
    world.experiment.loop.inbox.report({world.runner.job_name: exit_78})  # before there was a turn
    assert (await world.ended())["reason"] == "VERSION_MISMATCH"


# ------------------------------------------------------------------------------------------------ clocks


@pytest.mark.parametrize("claimed", [0, 2**53 - 1])
async def test_wrong_clocks_of_machines_are_tolerated(world: RunnerWorld, claimed: int) -> None:
    await world.register()
    MemoryPlatform.jobs[world.runner.job_name] = Observation(state=JobState.RUNNING)
    await world.reports.exited(world.runner, {**EXIT_0, "startedMs": claimed, "endedMs": claimed})
    trial = await world.ended()
    exit_ = trial["attempts"][0]["runnerExit"]
    now_ms = world.world.supervisor.shared.clock()
    submitted_ms = trial["attempts"][0]["submittedMs"]
    assert submitted_ms <= exit_["startedMs"] <= exit_["endedMs"] <= now_ms
    assert submitted_ms <= trial["endedMs"] <= now_ms


# ------------------------------------------------------------------------------------------------ back-pressure


async def test_more_than_can_be_stored_is_put_off(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_reports, "MAX_UNSTORED_LINES", 5)
    await world.register()
    lines, size = lines_of(1, 2, 3, 4)
    other = await world.add_trial()
    await world.reports.register(other, protocol.VERSION, "push")
    attempt, other_attempt = await world.reports.attempt(world.runner), await world.reports.attempt(other)
    first = asyncio.ensure_future(attempt.lines(OUTBOX, 0, size, lines))
    await asyncio.sleep(0)  # it has begun
    with pytest.raises(TooBusy, match="send them again in a second"):
        await other_attempt.lines(OUTBOX, 0, size, lines)
    assert await first == size
    assert await world.reports.lines(other, OUTBOX, 0, size, lines) == size


async def test_a_large_post_is_taken_when_it_is_alone(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_reports, "MAX_UNSTORED_LINES", 5)
    await world.register()
    lines, size = lines_of(*range(9))
    for start in (0, size):
        assert await world.reports.lines(world.runner, OUTBOX, start, start + size, lines) == start + size


async def test_unwritable_store_refuses_reports(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is posted is refused, and stays with the runner; so does what was taken and is not stored in time."""
    monkeypatch.setattr(runner_reports, "_PATIENCE_S", 0.05)
    await world.register()
    lines, size = lines_of(1)
    lock = sqlite3.connect(world.experiment.database.path)
    lock.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable, match="not stored yet"):
            await world.reports.lines(world.runner, OUTBOX, 0, size, lines)
        await world.until(lambda: world.experiment.database.trouble)
        for call in (
            world.reports.lines(world.runner, OUTBOX, 0, size, lines),
            world.reports.exited(world.runner, EXIT_0),
            world.reports.register(world.runner, protocol.VERSION, "push"),
        ):
            with pytest.raises(StoreUnavailable, match="is locked by another process"):
                await call
    finally:
        lock.rollback()
        lock.close()
    await world.until(lambda: not world.experiment.database.trouble)
    assert await world.reports.lines(world.runner, OUTBOX, 0, size, lines) == size, "once, although it was posted twice"
    assert (await world.trial())["intermediates"] == 1


# ------------------------------------------------------------------------------------------------ logs


async def test_a_log_is_written_as_it_comes(world: RunnerWorld) -> None:
    await world.register()
    write = world.reports.write_log
    assert await write(world.runner, "stdout", 0, b"0123456789") == 10
    assert await write(world.runner, "stdout", 0, b"0123456789") == 10, "a repeat"
    assert await write(world.runner, "stdout", 5, b"56789abc") == 13, "half a repeat"
    assert await write(world.runner, "stdout", 99, b"too far") == 13, "something before it is missing"
    assert await write(world.runner, "stdout", 13, b"") == 13
    assert (world.folder() / "stdout").read_bytes() == b"0123456789abc"
    assert (world.folder() / "stdout").stat().st_mode & 0o777 == 0o600


async def test_log_is_stored_after_its_service_was_removed(world: RunnerWorld) -> None:
    await world.register()
    await world.reports.exited(world.runner, EXIT_0)
    await world.ended()
    services = world.experiment._services.all
    name, service = services.popitem()
    try:
        assert await world.reports.write_log(world.runner, "stdout", 0, b"late") == 4
    finally:
        services[name] = service


async def test_other_processes_of_a_job_have_logs_of_their_own(world: RunnerWorld) -> None:
    await world.register()
    await world.reports.write_log(world.runner, "stderr", 0, b"of a worker", "../../worker 1\n")
    await world.reports.write_log(world.runner, "stderr", 0, b"of the reporter")
    found = {path.name: path.read_bytes() for path in world.folder().iterdir()}
    assert found == {"stderr": b"of the reporter", "stderr-.._.._worker_1_": b"of a worker"}


async def test_logs_kept_apart_are_bounded_in_number(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_reports, "MOST_SOURCES", 2)
    await world.register()
    for source in ("a", "b"):
        assert await world.reports.write_log(world.runner, "stdout", 0, b"x", source) == 1
    with pytest.raises(InvalidInput, match="at most 2 processes"):
        await world.reports.write_log(world.runner, "stdout", 0, b"x", "c")
    assert await world.reports.write_log(world.runner, "stdout", 1, b"y", "b") == 2, "those there are go on"
    assert await world.reports.write_log(world.runner, "stdout", 0, b"z") == 1, "so does the reporter's own"


async def test_outboxes_are_bounded_in_number(world: RunnerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_OUTBOXES", 2)
    await world.register()
    lines, size = lines_of(1)
    for name in ("a", "b"):
        assert await world.reports.lines(world.runner, f"outbox/{name}", 0, size, lines) == size
    with pytest.raises(InvalidInput, match="at most 2"):
        await world.reports.lines(world.runner, "outbox/c", 0, size, lines)
    assert await world.reports.lines(world.runner, "outbox/b", size, 2 * size, lines) == 2 * size
    assert set(await world.reports.offsets(world.runner)) == {"outbox/a", "outbox/b"}


@pytest.mark.parametrize("name", ["../stdout", "exit.json", "", "stdout-1", "parameter.cfg", "outbox/main.jsonl"])
async def test_unknown_log_name_is_refused(world: RunnerWorld, name: str) -> None:
    await world.register()
    with pytest.raises(NotFound, match="is not a log of a trial"):
        await world.reports.write_log(world.runner, name, 0, b"x")


@pytest.mark.parametrize("trick", ["link", "pipe", "directory"])
async def test_foreign_file_in_place_of_a_log_is_not_written(world: RunnerWorld, tmp_path: Path, trick: str) -> None:
    await world.register()
    victim, log = tmp_path / "victim", world.folder() / "stdout"
    victim.write_bytes(b"untouched")
    world.folder().mkdir(exist_ok=True)
    {"link": lambda: log.symlink_to(victim), "pipe": lambda: os.mkfifo(log), "directory": log.mkdir}[trick]()
    with pytest.raises(StoreUnavailable, match="stdout cannot be written"):
        await world.reports.write_log(world.runner, "stdout", 0, b"evil")
    assert victim.read_bytes() == b"untouched"


# ------------------------------------------------------------------------------------------------ code


async def test_the_packed_code_is_handed_out(world: RunnerWorld) -> None:
    await world.register()
    path = await world.reports.code(world.runner)
    assert path is not None and path == await world.reports.code(world.runner)
    with tarfile.open(path) as archive:
        assert "trial.py" in archive.getnames()


async def _experiment(world: RunnerWorld) -> dict[str, object]:
    async with world.world.calling() as client:
        return (await client.get(f"/api/v1/experiments/{world.id}")).json()  # type: ignore[no-any-return]


async def test_logs_of_one_attempt_are_kept_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """150 MB came in a second and a half with one token, and all of it stayed."""
    async with make_runner_world(tmp_path, monkeypatch, maxLogSize="1MB") as world:
        await world.register()
        piece, offset = b"0123456789abcde\n" * 4096, 0
        for _ in range(160):
            offset = await world.reports.write_log(world.runner, "stdout", offset, piece)
        assert offset == 160 * len(piece), "the runner goes on behind what it has sent"
        kept = (world.folder() / "stdout").read_bytes()
    assert len(kept) <= 2**20 + len(piece) and b"maxLogSize" in kept
    assert kept.startswith(piece) and kept.endswith(piece)
