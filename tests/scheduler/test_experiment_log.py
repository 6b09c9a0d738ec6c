"""A line of the logs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.experiment_log import ExperimentLog, Formatter

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


def test_a_line_is_one_that_nni_writes(log: ExperimentLog, tmp_path: Path) -> None:
    _log.info("Trial %s %s", "t1", "SUCCEEDED")

    when = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]"
    assert re.fullmatch(when + r" INFO \(test_experiment_log\) Trial t1 SUCCEEDED\n", _written(tmp_path))


def test_a_traceback_follows_its_line(log: ExperimentLog, tmp_path: Path) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        _log.exception("Cannot go on", stack_info=True)

    first, second, *_, last = _written(tmp_path).splitlines()
    assert first.endswith("Cannot go on") and second == "Traceback (most recent call last):"
    assert "KeyError: 'gone'\nStack (most recent call last):" in _written(tmp_path) and "_log.exception" in last


def test_only_what_concerns_the_experiment_is_written(log: ExperimentLog, tmp_path: Path) -> None:
    _log.debug("below the level")
    experiment_log.current.set("e2")
    _log.error("of another experiment")

    assert _written(tmp_path) == ""


def test_every_line_has_the_second_it_was_made_in() -> None:
    formatter = Formatter(suffix=lambda: " [e1]")
    record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "module": "here"})
    seconds = []
    for record.created in (1_000_000_000.2, 1_000_000_000.9, 1_000_000_001.0):
        when, rest = formatter.format(record).split("]", 1)
        assert rest == " INFO (here) [e1] m"
        seconds.append(when[-2:])

    assert seconds == ["40", "40", "41"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_trial_put_in_its_place_is_neither_waited_for_nor_followed(tmp_path: Path, kind: str) -> None:
    place, elsewhere = tmp_path / "nnimanager.log", tmp_path / "elsewhere"
    os.mkfifo(place) if kind == "pipe" else place.symlink_to(elsewhere)
    with pytest.raises(OSError, match="not a regular file"):
        ExperimentLog("exp1", tmp_path, "info")
    assert not elsewhere.exists()
    assert not any(isinstance(one, ExperimentLog) for one in logging.getLogger("nni_manager").handlers)
