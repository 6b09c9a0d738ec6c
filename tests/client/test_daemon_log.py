"""The file that a daemon in the background writes its output to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nni_manager.app import log as logs
from nni_manager.client import daemon, daemon_log
from nni_manager.client.daemon_log import LOG_FILE

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("is_large", [False, True])
def test_large_log_is_put_aside_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(daemon_log, "_LARGE_BYTES", 10)
    log, aside = tmp_path / LOG_FILE, tmp_path / f"{LOG_FILE}.1"
    before = "a long text\n" if is_large else "short\n"
    log.write_text(before)
    aside.write_text("earlier\n")
    with open(os.devnull, "wb") as writer:
        assert daemon._spawn([sys.executable, "-c", "print('begins')"], tmp_path, writer.fileno()).wait() == 0
    assert aside.read_text() == (before if is_large else "earlier\n")
    assert log.read_text() == ("begins\n" if is_large else "short\nbegins\n")


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def test_daemon_that_runs_goes_on_in_a_new_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_log, "_LARGE_BYTES", 10)
    log, aside, another = tmp_path / LOG_FILE, tmp_path / f"{LOG_FILE}.1", tmp_path / "serve.log"
    own, others = _opened(log), _opened(another)
    os.write(own, b"a long text\n")
    daemon_log.renew(log, (own, others))
    os.write(own, b"later\n")
    os.write(others, b"stays\n")
    assert (aside.read_text(), log.read_text(), another.read_text()) == ("a long text\n", "later\n", "stays\n")
    os.close(own)
    os.close(others)


def test_log_that_is_not_large_stays(tmp_path: Path) -> None:
    log = tmp_path / LOG_FILE
    own = _opened(log)
    os.write(own, b"short\n")
    daemon_log.renew(log, (own,))
    os.write(own, b"later\n")
    os.close(own)
    assert log.read_text() == "short\nlater\n"
    assert [file.name for file in tmp_path.iterdir()] == [LOG_FILE]


def test_large_log_of_another_daemon_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_log, "_LARGE_BYTES", 10)
    log = tmp_path / LOG_FILE
    log.write_text("a long text of another\n")
    own = _opened(tmp_path / "serve.log")
    daemon_log.renew(log, (own,))
    os.close(own)
    assert log.read_text() == "a long text of another\n"
    assert not (tmp_path / f"{LOG_FILE}.1").exists()


def test_what_a_daemon_says_goes_on_in_a_new_log(tmp_path: Path) -> None:
    program = f"""
import logging, sys
from pathlib import Path
from nni_manager.app import log as logs
from nni_manager.client import daemon_log
daemon_log._LARGE_BYTES = 1
logs.set_up("info", Path(sys.argv[1]))
for number in range({logs._LOOK_EVERY} + 1):
    logging.getLogger("nni_manager").info("line %06d", number)
"""
    log, aside = tmp_path / LOG_FILE, tmp_path / f"{LOG_FILE}.1"
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], stderr=output, check=True)
    said = (aside.read_text() + log.read_text()).splitlines()
    assert [int(line.split()[-1]) for line in said] == [*range(logs._LOOK_EVERY + 1)]
    assert len(log.read_text().splitlines()) == 1
