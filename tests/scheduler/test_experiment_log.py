"""A line of the logs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import StopRequest
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.experiment_log import ExperimentLog, Formatter
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.turns import change_log

_log = logging.getLogger("nni_manager.tests")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ExperimentLog]:
    handler = ExperimentLog("e1", tmp_path, "info")
    level = logging.getLogger("nni_manager").level
    logging.getLogger("nni_manager").setLevel("DEBUG")
    before = experiment_log.current.set("e1")
    yield handler
    experiment_log.current.reset(before)
    logging.getLogger("nni_manager").setLevel(level)
    handler.close()


def _written(folder: Path) -> str:
    return (folder / "nnimanager.log").read_text()


def test_line_has_format_of_nni(log: ExperimentLog, tmp_path: Path) -> None:
    _log.info("Trial %s %s", "t1", "SUCCEEDED")

    when = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]"
    assert re.fullmatch(when + r" INFO \(test_experiment_log\) Trial t1 SUCCEEDED\n", _written(tmp_path))


def test_changes_of_turn_are_one_line_each_in_order(log: ExperimentLog, tmp_path: Path) -> None:
    handles = [JobHandle(platform="fake", version=1, job_name=name) for name in ("a", "b")]
    failed: dict[str, Any] = {"attempt": 1, "status": TrialStatus.FAILED, "reason": Reason.USER_CODE, "ended_ms": 1}
    records = [
        d.Finish(trial_id="t0", message="exit 1\nFATAL forged", **failed),
        d.RequestStop(trial_id="t1", by=StopRequest.USER),
        d.MarkUnknown(trial_id="t2", sentence="100 % silent\nFATAL forged"),
        d.SetStatus(status=ExperimentStatus.DONE),
    ]
    change_log.log_changes(handles, records, ())

    when = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    assert re.sub(when, "", _written(tmp_path)).splitlines() == [
        "INFO (change_log) Job a submitted",
        "INFO (change_log) Job b submitted",
        "INFO (change_log) Trial t0 FAILED (USER_CODE: exit 1\\nFATAL forged)",
        "INFO (change_log) Trial t1 asked to stop (USER)",
        "WARNING (change_log) Trial t2 UNKNOWN: 100 % silent\\nFATAL forged",
        "INFO (change_log) Change experiment status to DONE",
        "INFO (change_log) Experiment done",
    ]


def test_a_traceback_follows_its_line(log: ExperimentLog, tmp_path: Path) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        _log.exception("Cannot go on", stack_info=True)

    first, second, *_, last = _written(tmp_path).splitlines()
    assert first.endswith("Cannot go on") and second == "Traceback (most recent call last):"
    assert "KeyError: 'gone'\nStack (most recent call last):" in _written(tmp_path) and "_log.exception" in last


def test_log_takes_only_records_of_its_experiment(log: ExperimentLog, tmp_path: Path) -> None:
    _log.debug("below the level")
    experiment_log.current.set("e2")
    _log.error("of another experiment")

    assert _written(tmp_path) == ""


def test_every_line_has_time_of_record() -> None:
    formatter = Formatter(suffix=lambda: " [e1]")
    record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "module": "here"})
    seconds = []
    for record.created in (1_000_000_000.2, 1_000_000_000.9, 1_000_000_001.0):
        when, rest = formatter.format(record).split("]", 1)
        assert rest == " INFO (here) [e1] m"
        seconds.append(when[-2:])

    assert seconds == ["40", "40", "41"]


EVIL = "\x1b]0;owned\x07\x1b[2J\r\n[2026-01-01 00:00:00] INFO (forged) all is well\x85\u2028\u202egone\x00"


def test_control_characters_in_message_are_escaped(log: ExperimentLog, tmp_path: Path) -> None:
    _log.warning("job %s wrote %s", "j1", EVIL)

    (line,) = _written(tmp_path).splitlines()
    assert line.isprintable() and line.count("\\x1b") == 2 and r"\r\n[2026-01-01" in line and r"\u202egone\x00" in line


def test_nor_in_a_traceback(log: ExperimentLog, tmp_path: Path) -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        _log.exception("Cannot go on")

    assert "\x1b" not in _written(tmp_path) and r"ValueError: \x1b[2J" in _written(tmp_path)


def test_printable_text_is_unchanged(log: ExperimentLog, tmp_path: Path) -> None:
    _log.info("näher\t%s", "試験\u3000\xa0C:\\new")

    assert _written(tmp_path).endswith("näher\t試験\u3000\xa0C:\\new\n")


def test_stderr_tail_is_logged_line_by_line(log: ExperimentLog, tmp_path: Path) -> None:
    report = Observation(state=JobState.FAILED, exit_code=1, stderr_tail=f"Traceback\n\n  File x\n{EVIL}\n")
    change_log.log_changes((), (), [("nni_exp_e1_trial_t1", report)])

    lines = _written(tmp_path).splitlines()
    assert all(line.isprintable() and "(journal)" in line.replace("experiment_log", "journal") for line in lines)
    assert lines[1].endswith("job nni_exp_e1_trial_t1 last wrote:   File x")
    assert not [line for line in lines if line.startswith("[2026-01-01")]


def test_no_more_than_the_last_lines_of_a_text_are_written(log: ExperimentLog, tmp_path: Path) -> None:
    report = Observation(state=JobState.FAILED, exit_code=1, stderr_tail="\n".join(map(str, range(1000))))
    change_log.log_changes((), (), [("j", report)])

    lines = _written(tmp_path).splitlines()
    assert len(lines) == 40 and lines[-1].endswith("last wrote: 999")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_log_is_not_opened_through_a_pipe_or_link(tmp_path: Path, kind: str) -> None:
    place, elsewhere = tmp_path / "nnimanager.log", tmp_path / "elsewhere"
    os.mkfifo(place) if kind == "pipe" else place.symlink_to(elsewhere)
    with pytest.raises(OSError, match="not a regular file"):
        ExperimentLog("exp1", tmp_path, "info")
    assert not elsewhere.exists()
    assert not any(isinstance(one, ExperimentLog) for one in logging.getLogger("nni_manager").handlers)
