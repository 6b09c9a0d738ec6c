"""The file that every reported result goes to first."""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

pytestmark = pytest.mark.unit

STAND_IN = Path(__file__).parents[2] / "trial_runner" / "stand_in"


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A fresh `nni_outbox`, as a process of a trial has it."""
    monkeypatch.syspath_prepend(STAND_IN)
    yield importlib.import_module("nni_outbox")
    del sys.modules["nni_outbox"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trial's outboxes, named by the environment. It does not exist yet."""
    monkeypatch.setenv("NNI_OUTBOX", str(tmp_path / "outbox" / "main.jsonl"))
    return tmp_path / "outbox"


def lines_of(folder: Path) -> list[list[str]]:
    """Complete lines of every outbox, the oldest outbox first."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    return [file.read_text().splitlines() for file in files]


class DiskThat:
    """The `os` module with a `write` of its own."""

    def __init__(self, write: Callable[[int, bytes], int]) -> None:
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return sum(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock(outbox: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(outbox, "sleep", clock.sleep)
    monkeypatch.setattr(outbox, "monotonic", clock.monotonic)
    return clock


def test_each_result_is_a_line_in_a_file_of_this_process(outbox: ModuleType, folder: Path) -> None:
    outbox.report(outbox.INTERMEDIATE, 0.5)
    outbox.report(outbox.INTERMEDIATE, {"default": 0.25, "loss": 2})
    outbox.report(outbox.FINAL, 1)
    (file,) = folder.iterdir()
    assert re.fullmatch(rf"{os.getpid()}-[0-9a-f]{{8}}\.jsonl", file.name)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"type": "intermediate", "value": 0.5},
        {"type": "intermediate", "value": {"default": 0.25, "loss": 2}},
        {"type": "final", "value": 1},
    ]


class Whole:
    """As numpy's whole numbers."""

    def __index__(self) -> int:
        return 7


def test_step_stands_on_the_line(outbox: ModuleType, folder: Path) -> None:
    outbox.report(outbox.INTERMEDIATE, 0.5, 3)
    outbox.report(outbox.INTERMEDIATE, {"default": 1}, Whole())
    (file,) = folder.iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"type": "intermediate", "value": 0.5, "step": 3},
        {"type": "intermediate", "value": {"default": 1}, "step": 7},
    ]


@pytest.mark.parametrize(
    ("step", "error"), [(-1, ValueError), (2**53, ValueError), (1.0, TypeError), ("1", TypeError), (True, TypeError)]
)
def test_wrong_step_is_refused(outbox: ModuleType, folder: Path, step: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="A step must be a whole number from 0"):
        outbox.report(outbox.INTERMEDIATE, 0.5, step)
    assert not folder.exists()


def test_without_an_outbox_the_trial_folder_gets_one(
    outbox: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NNI_OUTBOX", raising=False)
    monkeypatch.setenv("NNI_SYS_DIR", str(tmp_path))
    outbox.report(outbox.FINAL, 1)
    assert lines_of(tmp_path / "outbox") == [['{"type":"final","value":1}']]


def test_outside_a_trial_the_error_says_what_to_do(outbox: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNI_OUTBOX", raising=False)
    monkeypatch.delenv("NNI_SYS_DIR", raising=False)
    with pytest.raises(RuntimeError, match="NNI_OUTBOX and NNI_SYS_DIR are not set"):
        outbox.report(outbox.FINAL, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (7, "7"),
        (True, "true"),
        (None, "null"),
        ("Größe\n", '"Gr\\u00f6\\u00dfe\\n"'),
        ([1, (2.5, None)], "[1, [2.5, null]]"),
        ({"default": math.nan}, '{"default": NaN}'),
        (numpy.float64(0.5), "0.5"),
        (numpy.float32(0.25), "0.25"),
        (numpy.longdouble(0.75), "0.75"),
        (numpy.float32("nan"), "NaN"),
        (numpy.int64(3), "3"),
        (numpy.bool_(True), "true"),
        (numpy.array(1.5), "1.5"),
        ({"default": numpy.int8(1)}, '{"default": 1}'),
        ({3, 1, 2}, '{"__set__": [1, 2, 3]}'),
        (frozenset(), '{"__set__": []}'),
        (1 - 2j, '{"__complex__": [1.0, -2.0]}'),
        (numpy.complex64(1j), '{"__complex__": [0.0, 1.0]}'),
        (Decimal("0.10"), '{"__decimal__": "0.10"}'),
        ({"model": Path("/a/b")}, '{"model": {"__pathlib__": "/a/b"}}'),
        (datetime(2026, 11, 2, 0, 5), '{"__datetime__": null, "year": 2026, "month": 11, "day": 2, "minute": 5}'),
        (date(2026, 11, 2), '{"__date__": null, "year": 2026, "month": 11, "day": 2}'),
        (timedelta(minutes=2), '{"__timedelta__": null, "seconds": 120}'),
        (numpy.array([1.0, 2.0]), '{"__ndarray__": [1.0, 2.0], "dtype": "float64", "shape": [2]}'),
        (numpy.array([[1], [2]], "int32"), '{"__ndarray__": [[1], [2]], "dtype": "int32", "shape": [2, 1]}'),
    ],
)
def test_json_of_values(outbox: ModuleType, value: object, text: str) -> None:
    assert outbox.json_text(value) == text


def test_tensors_on_other_devices_are_asked_for_numpy(outbox: ModuleType) -> None:
    class Tensor:
        def numpy(self) -> Any:
            return numpy.float32(0.5)

    assert outbox.json_text({"default": Tensor()}) == '{"default": 0.5}'


@pytest.mark.parametrize(
    ("value", "name"),
    [(object(), "object"), ({object()}, "object"), ({(1, 2): 3}, "tuple"), (datetime.now(UTC), "datetime")],
)
def test_values_outside_json_are_refused_by_type(outbox: ModuleType, folder: Path, value: object, name: str) -> None:
    with pytest.raises(TypeError, match=rf"cannot be reported: .*\b{name}\b"):
        outbox.report(outbox.FINAL, {"default": value})
    assert not folder.exists()


def test_a_set_that_has_no_order_is_written_as_it_comes(outbox: ModuleType) -> None:
    assert sorted(json.loads(outbox.json_text({1, "a"}))["__set__"], key=str) == [1, "a"]


def test_settled_outbox_ignores_environment_and_folder(
    outbox: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NNI_OUTBOX", "outbox/main.jsonl")
    outbox.settle()
    monkeypatch.delenv("NNI_OUTBOX")
    monkeypatch.chdir("/")
    outbox.report(outbox.FINAL, 1)
    assert lines_of(tmp_path / "outbox") == [['{"type":"final","value":1}']]


def test_line_is_limited_to_a_million_bytes(outbox: ModuleType, folder: Path) -> None:
    room = outbox.MAX_LINE - len(outbox.encode_line(outbox.FINAL, '""'))
    outbox.report(outbox.FINAL, "x" * room)
    with pytest.raises(ValueError, match=r"takes 1000001 bytes and at most 1000000 .*\$NNI_OUTPUT_DIR"):
        outbox.report(outbox.FINAL, "x" * (room + 1))
    (lines,) = lines_of(folder)
    assert [len(line) + 1 for line in lines] == [1_000_000]


def test_a_partial_write_is_completed(outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "os", DiskThat(lambda file, data: os.write(file, data[:7])))
    outbox.report(outbox.INTERMEDIATE, 0.5)
    outbox.report(outbox.FINAL, 1.5)
    assert lines_of(folder) == [['{"type":"intermediate","value":0.5}', '{"type":"final","value":1.5}']]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_waited_for(
    outbox: ModuleType, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def write(file: int, data: bytes) -> int:
        if len(clock.waits) < 8:
            raise OSError(number, os.strerror(number))
        return os.write(file, data)

    monkeypatch.setattr(outbox, "os", DiskThat(write))
    outbox.report(outbox.FINAL, 1)
    assert clock.waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert lines_of(folder) == [['{"type":"final","value":1}']]


class FullDisk:
    """Takes `room` bytes, then says that it is full until `full` is unset."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.full = True

    def write(self, file: int, data: bytes) -> int:
        if not self.full:
            return os.write(file, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize(
    ("room", "kept"),
    [(0, ["2"]), (10, ["1", "2"])],
    ids=["nothing of the line was written: it is given up", "a part was written: it is completed"],
)
def test_full_disk_fails_after_ten_minutes_without_torn_line(
    outbox: ModuleType, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, room: int, kept: list[str]
) -> None:
    disk = FullDisk(room)
    monkeypatch.setattr(outbox, "os", DiskThat(disk.write))
    with pytest.raises(OSError, match=r"Could not append a result .*No space left.*\.jsonl") as caught:
        outbox.report(outbox.INTERMEDIATE, 1)
    assert caught.value.errno == errno.ENOSPC and Path(caught.value.filename).parent == folder
    assert 598 <= sum(clock.waits) <= 600
    disk.full = False
    outbox.report(outbox.INTERMEDIATE, 2)
    assert lines_of(folder) == [[f'{{"type":"intermediate","value":{value}}}' for value in kept]]


def test_other_errors_are_not_waited_for(outbox: ModuleType, folder: Path, clock: Clock) -> None:
    folder.write_text("not a folder")
    with pytest.raises(FileExistsError, match=r"Could not append a result .*\.jsonl"):
        outbox.report(outbox.FINAL, 1)
    assert clock.waits == []


def test_threads_do_not_tear_each_others_lines(
    outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "os", DiskThat(lambda file, data: os.write(file, data[:20])))
    writers = [threading.Thread(target=report_many, args=(outbox, writer)) for writer in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    (lines,) = lines_of(folder)
    values = [json.loads(line)["value"] for line in lines]
    for number in range(8):  # complete, and in each thread's order
        assert [n for who, n in values if who == number] == list(range(200))


def report_many(outbox: ModuleType, writer: int) -> None:
    for n in range(200):
        outbox.report(outbox.INTERMEDIATE, [writer, n])


def test_signal_handler_can_report_during_report(
    outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = [lambda: outbox.report(outbox.FINAL, 2)]

    def write(file: int, data: bytes) -> int:
        written = os.write(file, data[:5])
        while handlers:
            handlers.pop()()
        return written

    monkeypatch.setattr(outbox, "os", DiskThat(write))
    outbox.report(outbox.INTERMEDIATE, 1)
    outbox.report(outbox.INTERMEDIATE, 3)
    assert sorted(line for lines in lines_of(folder) for line in lines) == [
        '{"type":"final","value":2}',
        '{"type":"intermediate","value":1}',
        '{"type":"intermediate","value":3}',
    ]


def test_after_an_interrupted_report_a_new_file_is_begun(
    outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: int, data: bytes) -> int:
        os.write(file, data[:5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "os", DiskThat(write))
        with pytest.raises(KeyboardInterrupt):
            outbox.report(outbox.INTERMEDIATE, 1)
    outbox.report(outbox.FINAL, 2)
    assert sorted(file.read_text() for file in folder.iterdir()) == ['{"typ', '{"type":"final","value":2}\n']


def test_children_do_not_inherit_the_file(outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = []

    def write(file: int, data: bytes) -> int:
        descriptors.append(file)
        return os.write(file, data)

    monkeypatch.setattr(outbox, "os", DiskThat(write))
    outbox.report(outbox.FINAL, 1)
    assert [os.get_inheritable(descriptor) for descriptor in descriptors] == [False]


def test_a_copy_of_the_process_begins_a_file_of_its_own(
    outbox: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.report(outbox.INTERMEDIATE, 1)
    copied = DiskThat(os.write)
    copied.getpid = lambda: 7  # type: ignore[attr-defined]
    monkeypatch.setattr(outbox, "os", copied)  # a fork that Python was not told of
    outbox.report(outbox.INTERMEDIATE, 2)
    assert sorted(file.name.partition("-")[0] for file in folder.iterdir()) == sorted([str(os.getpid()), "7"])
