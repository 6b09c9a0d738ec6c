"""Runners that are read: greeting, results from the stored offsets, logs, the end, and how often is looked."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from nni_manager.domain.errors import StoreUnavailable, VersionRefused
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.testing import DeliveredLines, Lag, Recorder, lagging_storage, unreachable_keeper
from nni_manager.shared_storage import pull, runner_folder
from nni_manager.shared_storage.pull import Pull
from tests.trial_runner.deep_tree import deep_tree_at
from trial_runner import protocol
from trial_runner.wire import foreign_files, outbox_files

pytestmark = pytest.mark.unit

JOB = "nni_exp_e_trial_a"
MAIN = protocol.MAIN_OUTBOX
FINAL = '{"type": "final", "value": 1}'


class Attempt:
    """A folder as a runner fills it, and its reader."""

    def __init__(self, directory: Path) -> None:
        self.recorder = Recorder()
        self.recorder.accept(JobHandle(platform="x", version=1, job_name=JOB))
        self.folder, self.logs = directory / "mounted", directory / "trials" / "a"
        (self.folder / "outbox").mkdir(parents=True)
        self.pull = self.reader()

    def reader(self) -> Pull:
        pull = Pull(self.recorder.host(unreachable_keeper()))
        pull.follow(JOB, self.folder, self.logs)
        return pull

    def greet(self, version: object = "0.6.0", **more: object) -> None:
        (self.folder / protocol.RUNNER_FILE).write_text(json.dumps({"version": version, **more}))

    def report(self, text: str, outbox: str = MAIN) -> None:
        path = self.folder / outbox
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def exit(self, code: int | None, signal: int | None = None, pid: int = 7, **more: object) -> None:
        word = {"pid": pid, "exit_code": code, "signal": signal, "started_ms": 1000, "ended_ms": 2000, **more}
        (self.folder / protocol.EXIT_FILE).write_text(json.dumps(word))

    async def look(self) -> None:
        """At once, whenever it would have been time."""
        for attempt in self.pull._attempts.values():
            attempt.next_at = 0.0
        await self.pull.look()

    @property
    def word(self) -> dict[str, object]:
        return json.loads(self.recorder.ends[JOB])  # type: ignore[no-any-return]


@pytest.fixture
async def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


async def test_results_wait_for_runners_version(attempt: Attempt) -> None:
    attempt.report(FINAL + "\n")
    await attempt.look()
    assert attempt.recorder.handed_over == []
    assert not attempt.pull.has_started(JOB)
    attempt.greet()
    await attempt.look()
    assert attempt.recorder.greetings == {JOB: ("0.6.0", "pull")}
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]
    assert attempt.pull.has_started(JOB) and JOB in attempt.recorder.woken


@pytest.mark.parametrize("version", [None, 6, "", " ", "0.6." + "0" * 61, "0.6\n0"])
async def test_registration_without_version_is_passed_on(attempt: Attempt, version: object) -> None:
    attempt.greet(version)
    await attempt.look()
    assert attempt.recorder.greetings == {JOB: (None, "pull")}


async def test_a_refused_runner_is_read_no_more(attempt: Attempt) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise VersionRefused("no")

    attempt.recorder._register = refuse  # type: ignore[method-assign]
    attempt.pull = attempt.reader()
    attempt.greet()
    attempt.report(FINAL + "\n")
    await attempt.look()
    assert attempt.pull.is_over(JOB) and attempt.recorder.handed_over == []


async def test_lines_are_taken_when_they_are_complete_and_once(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n{"b"')
    await attempt.look()
    attempt.report(": 2}\n")
    await attempt.look()
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == ['{"a": 1}', '{"b": 2}']
    assert [(chunk.start, chunk.end) for chunk in attempt.recorder.handed_over] == [(0, 9), (9, 18)]


async def test_new_process_continues_at_stored_offset(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n')
    await attempt.look()
    attempt.pull = attempt.reader()
    attempt.report('{"b": 2}\n')
    await attempt.look()
    assert [chunk.lines for chunk in attempt.recorder.handed_over] == [('{"a": 1}',), ('{"b": 2}',)]


async def test_lines_lost_by_the_store_are_delivered_again(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n')
    await attempt.look()
    attempt.recorder.lose(JOB, MAIN)
    attempt.report('{"b": 2}\n')
    await attempt.look()
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == ['{"a": 1}', '{"b": 2}']


async def test_a_store_that_cannot_be_written_costs_nothing(attempt: Attempt, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_chunk: DeliveredLines) -> None:
        raise StoreUnavailable("the disk is full")

    attempt.greet()
    attempt.report(FINAL + "\n")
    attempt.exit(0)
    go_on, attempt.recorder.before_storing = attempt.recorder.before_storing, refuse
    await attempt.look()
    await attempt.look()
    assert caplog.text.count("the disk is full") == 1 and attempt.recorder.ends == {}
    attempt.recorder.before_storing = go_on
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]
    assert attempt.word["outboxes"] == {MAIN: len(FINAL) + 1}


async def test_the_end_comes_after_all_results_with_their_sizes(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n')
    attempt.report(FINAL, "outbox/sub/worker.jsonl")  # its last line was never ended
    attempt.exit(0)
    await attempt.look()
    assert attempt.recorder.lines(JOB, "outbox/sub/worker.jsonl") == [FINAL]
    assert attempt.word == {
        "wasStarted": True,
        "exitCode": 0,
        "signal": None,
        "stderrTail": "",
        "startedMs": 1000,
        "endedMs": 2000,
        "outboxes": {MAIN: 9, "outbox/sub/worker.jsonl": len(FINAL)},
        "container": "",
        "doubt": "",
    }
    assert attempt.pull.is_over(JOB)


async def test_failure_report_has_the_stderr_tail(attempt: Attempt) -> None:
    attempt.greet()
    (attempt.folder / "stderr").write_text("x" * 5000 + "out of luck")
    attempt.exit(None, 9)
    await attempt.look()
    tail = str(attempt.word["stderrTail"])
    assert tail.endswith("out of luck") and len(tail) == protocol.MAX_STDERR_TAIL
    assert (attempt.word["exitCode"], attempt.word["signal"]) == (None, 9)


async def test_unstarted_command_needs_no_registration(attempt: Attempt) -> None:
    attempt.exit(64, pid=0)
    await attempt.look()
    assert attempt.word["exitCode"] == 64


async def test_the_end_of_a_runner_that_pushes_is_not_ours(attempt: Attempt) -> None:
    attempt.report(FINAL + "\n")
    attempt.exit(0)
    await attempt.look()
    assert attempt.recorder.ends == {} and attempt.recorder.handed_over == []


@pytest.mark.parametrize("text", ["", "[]", '{"exit_code": true, "signal": null}', '{"exit_code": 1, "signal": 2}'])
async def test_invalid_exit_file_is_ignored(attempt: Attempt, text: str, caplog: pytest.LogCaptureFixture) -> None:
    attempt.greet()
    (attempt.folder / protocol.EXIT_FILE).write_text(text)
    await attempt.look()
    assert attempt.recorder.ends == {} and protocol.EXIT_FILE in caplog.text


async def test_exit_file_yields_numbers_only(attempt: Attempt) -> None:
    attempt.greet()
    (attempt.folder / protocol.EXIT_FILE).write_text('{"exit_code": false, "signal": 9, "ended_ms": "late"}')
    await attempt.look()
    assert (attempt.word["exitCode"], attempt.word["signal"], attempt.word["endedMs"]) == (None, 9, None)


# ------------------------------------------------------------------------------------------------ storage that lags


SIZE = len(FINAL) + 1


async def test_results_that_become_visible_after_the_end_are_taken(attempt: Attempt) -> None:
    (attempt.folder / "outbox").rmdir()
    attempt.greet()
    attempt.exit(0, outboxes={MAIN: SIZE, "outbox/2.jsonl": 3}, logs={"stdout": 0})
    await attempt.look()
    assert attempt.word["outboxes"] == {MAIN: SIZE, "outbox/2.jsonl": 3}, "so much is to come"
    assert not attempt.pull.is_over(JOB)
    (attempt.folder / "outbox").mkdir()
    attempt.report(FINAL[:10])
    await attempt.look()
    attempt.report(FINAL[10:] + "\n")
    await attempt.look()
    assert not attempt.pull.is_over(JOB)
    attempt.report("{}\n", "outbox/2.jsonl")
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL] and attempt.pull.is_over(JOB)


async def test_late_lines_are_taken_after_the_end_was_given_up(attempt: Attempt) -> None:
    attempt.greet()
    attempt.exit(0, outboxes={MAIN: SIZE})
    attempt.pull.finish(JOB, 0.0)
    await attempt.look()
    assert attempt.pull.is_over(JOB), "the platform's word is kept back no longer"
    attempt.report(FINAL + "\n")
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]


@pytest.mark.parametrize("first", ["start", "middle"])
async def test_zeros_are_bytes_that_are_not_there_yet(attempt: Attempt, first: str) -> None:
    """NFS shows a file's new length before its new bytes; all is there when the job is said to have ended, or later."""
    lines = [json.dumps({"type": "intermediate", "value": number}) for number in range(50)] + [FINAL]
    text = "\n".join(lines) + "\n"
    path = attempt.folder / MAIN
    attempt.greet()
    shown = 0 if first == "start" else len(text) // 2
    path.write_text(text[:shown] + "\0" * (len(text) - shown))
    await attempt.look()
    attempt.exit(0, outboxes={MAIN: len(text)})
    attempt.pull.finish(JOB, 60)
    await attempt.look()
    assert not attempt.pull.is_over(JOB)
    path.write_text("\0" * 100 + text[100:])
    await attempt.look()
    path.write_text(text)
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == lines
    assert attempt.pull.is_over(JOB)


async def test_zeros_that_stay_cost_no_result_behind_them(attempt: Attempt) -> None:
    attempt.greet()
    (attempt.folder / MAIN).write_text("\0" * 100 + FINAL + "\n")
    attempt.exit(0, outboxes={MAIN: 101 + len(FINAL)})
    attempt.pull.finish(JOB, 0)
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]


async def test_zeros_in_a_log_are_waited_for_and_then_taken(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt.greet()
    stdout, copy = attempt.folder / "stdout", attempt.logs / "stdout"
    stdout.write_bytes(b"begin\n" + b"\0" * 8)
    await attempt.look()
    assert copy.read_bytes() == b"begin\n"
    stdout.write_bytes(b"begin\n" + b"the rest")
    await attempt.look()
    assert copy.read_bytes() == b"begin\nthe rest"
    stdout.write_bytes(b"begin\n" + b"the rest" + b"\0 printed")
    await attempt.look()
    assert copy.read_bytes() == b"begin\nthe rest"
    monkeypatch.setattr(pull, "LOG_PATIENCE_S", 0.0)
    attempt.pull = attempt.reader()
    await attempt.look()
    await attempt.look()
    assert copy.read_bytes() == b"begin\nthe rest\0 printed"


async def test_many_other_files_cost_no_outbox_that_is_known(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the folder: with nothing listed at all, what was read before and the usual one are read."""
    attempt.greet()
    attempt.report(FINAL + "\n", "outbox/of-a-process")
    await attempt.look()
    monkeypatch.setattr(foreign_files, "MOST_NAMES", 0)
    attempt.report(FINAL + "\n", "outbox/of-a-process")
    attempt.report(FINAL + "\n")
    attempt.exit(0)
    for _ in range(2):
        await attempt.look()
    assert attempt.recorder.lines(JOB, "outbox/of-a-process") == [FINAL, FINAL]
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]
    assert attempt.recorder.lines(JOB, protocol.NOT_READ_OUTBOX) == [protocol.NOT_READ]


async def test_a_frame_that_is_not_whole_yet_is_not_given_up(attempt: Attempt) -> None:
    data = frame(FINAL) + frame(FINAL)
    path = attempt.folder / protocol.METRICS_FILE
    path.parent.mkdir()
    path.write_bytes(data[:-5])
    attempt.greet()
    attempt.exit(0, outboxes={protocol.METRICS_FILE: len(data)})
    await attempt.look()
    path.write_bytes(data)
    await attempt.look()
    assert attempt.recorder.lines(JOB, protocol.METRICS_FILE) == [FINAL, FINAL] and attempt.pull.is_over(JOB)


async def test_incomplete_record_is_named_and_given_up(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report(FINAL + '\n{"type')
    attempt.exit(0, outboxes={MAIN: SIZE + 6})
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL, '{"type'] and attempt.pull.is_over(JOB)


async def test_a_file_that_seems_shorter_for_a_while_costs_nothing(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n')
    await attempt.look()
    with lagging_storage(attempt.folder, Lag.TRUNCATED):
        attempt.report(FINAL + "\n")
        await attempt.look()
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == ['{"a": 1}', FINAL]


@pytest.mark.parametrize("there", [{}, {MAIN: 2}], ids=["removed", "shortened"])
async def test_outbox_the_runner_misses_at_the_end_is_said(attempt: Attempt, there: dict[str, int]) -> None:
    attempt.greet()
    attempt.report('{"a": 1}\n')
    await attempt.look()
    os.truncate(attempt.folder / MAIN, 2)
    if not there:
        (attempt.folder / MAIN).unlink()
    attempt.exit(0, outboxes=there, logs={}, gone="outbox is gone")
    await attempt.look()
    assert attempt.recorder.lines(JOB, protocol.NOT_READ_OUTBOX) == [protocol.GONE]
    assert attempt.word["doubt"] == "outbox is gone"


async def test_a_stale_outbox_holds_up_neither_the_others_nor_the_end(
    attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n")
    attempt.report("{}\n", "outbox/2.jsonl")
    attempt.exit(0, outboxes={MAIN: SIZE, "outbox/2.jsonl": 3})
    next_stretch = runner_folder.next_outbox_stretch

    def stale(folder: Path, outbox: str, start: int, **more: Any) -> runner_folder.OutboxLines | None:
        if outbox == "outbox/2.jsonl":
            raise OSError(errno.ESTALE, "Stale file handle")
        return next_stretch(folder, outbox, start, **more)

    with patch.object(runner_folder, "next_outbox_stretch", stale):
        await attempt.look()
        await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL] and attempt.word["exitCode"] == 0
    assert caplog.text.count("Stale file handle") == 1 and not attempt.pull.is_over(JOB)
    await attempt.look()
    assert attempt.recorder.lines(JOB, "outbox/2.jsonl") == ["{}"] and attempt.pull.is_over(JOB)


async def test_end_waits_for_logs_and_names_missing_ones(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt.greet()
    (attempt.folder / "stderr").write_text("out ")
    attempt.exit(3, outboxes={}, logs={"stderr": 11, "stdout": 0})
    await attempt.look()
    assert attempt.recorder.ends == {}
    monkeypatch.setattr(pull, "LOG_PATIENCE_S", 0.0)
    await attempt.look()
    assert attempt.word["doubt"] == "its logs are incomplete: only 4 of 11 bytes of stderr could be read in time"
    (attempt.folder / "stderr").write_text("out of luck")
    await attempt.look()
    assert (attempt.logs / "stderr").read_text() == "out of luck" and attempt.pull.is_over(JOB)


@pytest.mark.parametrize(
    "sizes", [None, [], "x", {MAIN: "7"}, {MAIN: -1}, {MAIN: 2**70}, {"nowhere": 9, "outbox/../x": 9}]
)
async def test_sizes_that_make_no_sense_are_not_waited_for(attempt: Attempt, sizes: object) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n")
    attempt.exit(0, outboxes=sizes, logs=sizes)
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL] and attempt.pull.is_over(JOB)


# ------------------------------------------------------------------------------------------------ odd outboxes


async def test_outbox_with_non_text_name_is_read(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n", os.fsdecode(b"outbox/caf\xe9.jsonl"))
    await attempt.look()
    assert attempt.recorder.lines(JOB, r"outbox/caf\xe9.jsonl") == [FINAL]


async def test_fault_in_one_trials_files_does_not_affect_others(
    attempt: Attempt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_for_one(chunk: DeliveredLines) -> None:
        if chunk.job_name == JOB:
            raise TypeError("a fault of ours")

    other = tmp_path / "other"
    (other / "outbox").mkdir(parents=True)
    attempt.pull.follow("other", other, tmp_path / "trials" / "b")
    attempt.greet()
    attempt.report(FINAL + "\n")
    for path in (attempt.folder / protocol.RUNNER_FILE, attempt.folder / MAIN):
        (other / path.relative_to(attempt.folder)).write_bytes(path.read_bytes())
    attempt.recorder.before_storing = fail_for_one
    await attempt.look()
    await attempt.look()
    assert attempt.recorder.lines("other", MAIN) == [FINAL]
    assert caplog.text.count("cannot be read now: a fault of ours") == 1 and "Traceback" in caplog.text


# ------------------------------------------------------------------------------------------------ containers


A, B, C = "a" * 16, "b" * 16, "c" * 16


async def test_second_container_voids_end_of_first(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    attempt.report('{"a": 1}\n')
    await attempt.look()
    attempt.greet(container=B, outboxes={MAIN: 9})
    attempt.exit(1, outboxes={MAIN: 9}, container=A)
    attempt.report('{"b": 2}\n')
    await attempt.look()
    assert attempt.recorder.containers == {JOB: [A, B]} and attempt.recorder.ends == {}
    assert attempt.recorder.lines(JOB, MAIN) == ['{"a": 1}', '{"b": 2}']
    attempt.exit(0, outboxes={MAIN: 18}, container=B)
    await attempt.look()
    assert (attempt.word["exitCode"], attempt.word["container"]) == (0, B)


async def test_second_container_with_new_files_is_read_from_start(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    attempt.report('{"a": 1}\n{"a": 2}\n')
    await attempt.look()
    (attempt.folder / MAIN).unlink()
    attempt.greet(container=B, outboxes={})
    attempt.report('{"b": 1}\n')
    await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == ['{"a": 1}', '{"a": 2}', '{"b": 1}']


def by_container(attempt: Attempt) -> list[tuple[str, list[str]]]:
    """Container → the lines that counted as its own, in order."""
    return [(chunk.container, list(chunk.lines)) for chunk in attempt.recorder.handed_over]


async def test_unread_lines_count_as_those_of_their_container(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    await attempt.look()
    attempt.report('{"a": 1}\n')
    attempt.greet(container=B, outboxes={MAIN: 9})
    attempt.report('{"b": 2}\n')
    await attempt.look()
    assert by_container(attempt) == [(A, ['{"a": 1}']), (B, ['{"b": 2}'])]


async def test_second_container_is_not_read_before_the_first_one(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.greet(container=A, outboxes={})
    await attempt.look()
    attempt.greet(container=B, outboxes={MAIN: 9})
    await attempt.look()
    assert attempt.recorder.containers == {JOB: [A]}, "storage may still show the rest of the first one"
    attempt.report('{"a": 1}\n{"b": 2}\n')
    await attempt.look()
    assert by_container(attempt) == [(A, ['{"a": 1}']), (B, ['{"b": 2}'])]
    attempt.greet(container=C, outboxes={MAIN: 99})
    monkeypatch.setattr(pull, "LOG_PATIENCE_S", 0.0)
    await attempt.look()
    assert attempt.recorder.containers == {JOB: [A, B, C]}, "what never appears is not waited for"


async def test_container_after_a_complete_end_is_read(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    attempt.exit(143, outboxes={}, logs={}, container=A)
    await attempt.look()
    assert attempt.pull.is_over(JOB) and attempt.pull.has_ended(JOB)
    attempt.greet(container=B, outboxes={})
    attempt.report('{"b": 1}\n')
    await attempt.look()
    assert not attempt.pull.is_over(JOB) and not attempt.pull.has_ended(JOB)
    attempt.exit(0, outboxes={MAIN: 9}, logs={}, container=B)
    await attempt.look()
    assert attempt.pull.is_over(JOB) and (attempt.word["exitCode"], attempt.word["container"]) == (0, B)
    assert attempt.recorder.lines(JOB, MAIN) == ['{"b": 1}']


async def test_end_of_an_earlier_run_decides_nothing(attempt: Attempt) -> None:
    attempt.pull.forget(JOB)
    attempt.pull.follow(JOB, attempt.folder, attempt.logs, run=A)
    attempt.greet(container=A, outboxes={})
    await attempt.look()
    attempt.pull.follow(JOB, attempt.folder, attempt.logs, run=B)
    attempt.report('{"a": 1}\n')
    attempt.exit(143, outboxes={MAIN: 9}, logs={}, container=A)
    await attempt.look()
    assert attempt.recorder.ends == {} and not attempt.pull.has_ended(JOB)
    attempt.greet(container=B, outboxes={MAIN: 9})
    attempt.exit(0, outboxes={MAIN: 9}, logs={}, container=B)
    await attempt.look()
    assert attempt.word["container"] == B and by_container(attempt) == [(A, ['{"a": 1}'])]


async def test_new_process_reads_only_the_present_run(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    attempt.exit(0, outboxes={}, logs={}, container=A)
    attempt.pull.forget(JOB)
    attempt.pull.follow(JOB, attempt.folder, attempt.logs, run=B)
    await attempt.look()
    assert attempt.recorder.ends == {} and not attempt.pull.has_started(JOB)


async def test_later_run_is_read_before_the_service_tells_of_it(attempt: Attempt) -> None:
    attempt.pull.forget(JOB)
    attempt.pull.follow(JOB, attempt.folder, attempt.logs, run=A)
    attempt.greet(container=A, outboxes={})
    attempt.report('{"a": 1}\n')
    await attempt.look()
    attempt.greet(container=B, outboxes={MAIN: 9})
    attempt.report('{"b": 2}\n')
    attempt.exit(0, outboxes={MAIN: 18}, logs={}, container=B)
    await attempt.look()
    assert by_container(attempt) == [(A, ['{"a": 1}']), (B, ['{"b": 2}'])] and attempt.recorder.ends == {}
    attempt.pull.follow(JOB, attempt.folder, attempt.logs, run=B)
    await attempt.look()
    assert attempt.word["container"] == B


async def test_lines_written_while_another_container_registers_wait(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.greet(container=A, outboxes={})
    await attempt.look()
    read = runner_folder.next_outbox_stretch

    def read_late(*arguments: Any, **options: Any) -> runner_folder.OutboxLines | None:
        if not attempt.folder.joinpath(MAIN).read_text():
            attempt.greet(container=B, outboxes={MAIN: 0})
            attempt.report('{"b": 1}\n')
        return read(*arguments, **options)

    (attempt.folder / MAIN).touch()
    monkeypatch.setattr(runner_folder, "next_outbox_stretch", read_late)
    await attempt.look()
    await attempt.look()
    assert by_container(attempt) == [(B, ['{"b": 1}'])]


async def test_outdated_registration_changes_nothing(attempt: Attempt) -> None:
    attempt.greet(container=A, outboxes={})
    await attempt.look()
    attempt.greet(container=B, outboxes={})
    await attempt.look()
    attempt.greet(container=A, outboxes={})
    attempt.report('{"b": 1}\n')
    await attempt.look()
    assert attempt.recorder.containers == {JOB: [A, B]}
    assert attempt.recorder.lines(JOB, MAIN) == ['{"b": 1}']


async def test_logs_are_copied_as_they_grow(attempt: Attempt) -> None:
    attempt.greet()
    (attempt.folder / "stdout").write_text("one\n")
    await attempt.look()
    with (attempt.folder / "stdout").open("a") as file:
        file.write("two\n")
    await attempt.look()
    assert (attempt.logs / "stdout").read_text() == "one\ntwo\n"
    assert not (attempt.logs / "stderr").exists()


async def test_links_are_not_followed(attempt: Attempt, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(FINAL + "\n")
    attempt.greet()
    (attempt.folder / "stdout").symlink_to(secret)
    (attempt.folder / MAIN).symlink_to(secret)
    await attempt.look()
    assert attempt.recorder.handed_over == [] and not (attempt.logs / "stdout").exists()


async def test_a_deep_outbox_ends_nothing(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n")
    with deep_tree_at(attempt.folder / "outbox" / "deep", 1900):
        await attempt.look()
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]


@pytest.mark.parametrize("way", ["", "outbox"])
async def test_no_link_is_followed_above_a_file_either(attempt: Attempt, tmp_path: Path, way: str) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n")
    place = attempt.folder / way
    place.rename(tmp_path / "secret")
    place.symlink_to(tmp_path / "secret")
    await attempt.look()
    assert attempt.recorder.handed_over == []


async def test_ended_job_without_exit_file_is_given_up_after_a_while(attempt: Attempt) -> None:
    attempt.greet()
    attempt.report(FINAL + "\n")
    attempt.pull.finish(JOB, 0.0)
    await attempt.pull.look()  # there were results: perhaps there are more
    assert attempt.recorder.lines(JOB, MAIN) == [FINAL]
    await attempt.look()
    assert attempt.pull.is_over(JOB) and attempt.recorder.ends == {}


async def test_forgotten_job_is_not_read(attempt: Attempt) -> None:
    attempt.pull.forget(JOB)
    assert attempt.pull.is_over(JOB) and not attempt.pull.has_started(JOB)
    attempt.pull.finish(JOB, 1.0)


async def test_many_results_are_taken_in_turns(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_folder, "_OUTBOX_BYTES", 64)
    attempt.greet()
    lines = [json.dumps({"type": "intermediate", "value": number}) for number in range(200)]
    attempt.report("\n".join(lines) + "\n")
    attempt.exit(0)
    await attempt.look()
    assert len(attempt.recorder.handed_over) == 16 and attempt.recorder.ends == {}
    running = asyncio.create_task(attempt.pull.run())
    assert await attempt.recorder.until_lines(JOB, MAIN, 200) == lines
    await cancelled(running)


@pytest.mark.looptime
async def test_polling_slows_down_until_a_change(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt.pull = attempt.reader()  # by this loop's clock
    times = await times_of_looks(attempt, monkeypatch, quiet_s=60)
    waits = [later - earlier for earlier, later in pairwise(times)]
    growing = all(later >= earlier - 1e-6 for earlier, later in pairwise(waits))
    assert growing and waits[0] < 1 and waits[-1] == pytest.approx(pull.LONGEST_WAIT_S)
    attempt.greet()
    attempt.report(FINAL + "\n")
    times = await times_of_looks(attempt, monkeypatch, quiet_s=11)
    assert any(later - earlier == pytest.approx(0.5) for earlier, later in pairwise(times))


async def times_of_looks(attempt: Attempt, monkeypatch: pytest.MonkeyPatch, quiet_s: float) -> list[float]:
    """When the attempt was looked at within some (virtual) seconds."""
    times: list[float] = []

    async def inline(function: object, *arguments: object, **options: object) -> object:
        return function(*arguments, **options)  # type: ignore[operator]

    monkeypatch.setattr(asyncio, "to_thread", inline)
    look_at = Pull._look_at
    loop = asyncio.get_running_loop()

    async def noted(self: Pull, one: pull._Attempt) -> None:
        times.append(loop.time())
        await look_at(self, one)

    with monkeypatch.context() as patch:
        patch.setattr(Pull, "_look_at", noted)
        running = asyncio.create_task(attempt.pull.run())
        await asyncio.sleep(quiet_s)
        await cancelled(running)
    return times


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# ------------------------------------------------------------------------------------------------ records


def frame(text: str) -> bytes:
    data = text.encode() + b"\n"
    return b"ME%06d" % len(data) + data


def stretches(folder: Path, *, is_ended: bool = False, name: str = protocol.METRICS_FILE) -> list[Sequence[str]]:
    found, start = [], 0
    while (stretch := runner_folder.next_outbox_stretch(folder, name, start, is_ended=is_ended)) is not None:
        assert stretch.start == start < stretch.end
        found.append(stretch.lines)
        start = stretch.end
    return found


@pytest.mark.parametrize(
    ("data", "is_ended", "expected"),
    [
        (frame("a") + frame("ä"), False, ["a", "ä"]),
        (frame("a") + frame("b")[:-1], False, ["a"]),
        (frame("a") + b"ME00", False, ["a"]),
        (frame("a")[:-3] + frame("b"), False, ["b"]),
        (b"junk" + frame("a"), False, ["a"]),
        (frame("a") + b"ME000100" + frame("b"), True, ["a", "b"]),
        (b"", True, []),
    ],
)
def test_frames_of_the_metrics_file(tmp_path: Path, data: bytes, is_ended: bool, expected: list[str]) -> None:
    (tmp_path / ".nni").mkdir()
    (tmp_path / protocol.METRICS_FILE).write_bytes(data)
    assert outbox_files.present(str(tmp_path), ()).names == [protocol.METRICS_FILE]
    assert [line for lines in stretches(tmp_path, is_ended=is_ended) for line in lines] == expected


def test_a_frame_that_is_completed_later_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / ".nni").mkdir()
    path, data = tmp_path / protocol.METRICS_FILE, frame("first") + frame("second")
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        before = runner_folder.next_outbox_stretch(tmp_path, protocol.METRICS_FILE, 0, is_ended=False)
        path.write_bytes(data)
        start = 0 if before is None else before.end
        after = runner_folder.next_outbox_stretch(tmp_path, protocol.METRICS_FILE, start, is_ended=False)
        taken = [*(before.lines if before else ()), *(after.lines if after else ())]
        assert taken == ["first", "second"], cut


def test_a_line_longer_than_one_read_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "outbox").mkdir()
    line = json.dumps("x" * 700_000)
    (tmp_path / MAIN).write_text(f"{line}\n{FINAL}\n")
    assert [text for lines in stretches(tmp_path, name=MAIN) for text in lines] == [line, FINAL]


def test_a_record_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "outbox").mkdir()
    (tmp_path / MAIN).write_bytes(b"x" * (9 * 1024 * 1024) + b"\n" + FINAL.encode() + b"\n")
    found = [text for lines in stretches(tmp_path, name=MAIN) for text in lines]
    assert found[-1] == FINAL and len(found) <= 2


def test_pipes_and_hidden_files_are_not_outboxes(tmp_path: Path) -> None:
    (tmp_path / "outbox" / "deep").mkdir(parents=True)
    for name in ("main.jsonl", ".hidden", "deep/more.jsonl"):
        (tmp_path / "outbox" / name).touch()
    os.mkfifo(tmp_path / "outbox" / "pipe")
    assert outbox_files.present(str(tmp_path), ()).names == ["outbox/deep/more.jsonl", MAIN]
