"""A daemon started without standard streams, signals or UTF-8."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_daemon import PYTHON, Daemon, assert_gone

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start]

#: Closed input and stderr, blocked signals: as init scripts, cron and simple launchers do.
BARE = """
import os, signal, sys
os.close(0)
os.close(2)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.executable, [sys.executable, "-m", "nni_manager", *sys.argv[1:]])
"""
#: Reports which signals it has blocked and where its input comes from.
TRIAL = """
import json, os
blocked = next(line for line in open("/proc/self/status") if line.startswith("SigBlk"))
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": int(blocked.split()[1], 16)}) + chr(10))
print(os.readlink("/proc/self/fd/0"))
"""
#: No UTF-8, with Python's fallbacks disabled.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_daemon_starts_without_streams_signals_and_utf8(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", environment=PLAIN, program=("-c", BARE))
    (tmp_path / "trial.py").write_text(TRIAL)
    daemon.data.mkdir()
    try:
        daemon.start()
        _see_it_through(daemon, tmp_path)
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.kill()
    assert_gone(str(daemon.data))


def _see_it_through(daemon: Daemon, folder: Path) -> None:
    id_ = daemon.create(
        {
            "searchSpace": {"x": {"_type": "choice", "_value": ["ä"]}},
            "trialCommand": f"{PYTHON} trial.py",
            "trialConcurrency": 1,
            "maxTrialNumber": 1,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "local"},
        },
        folder,
    )
    assert daemon.wait(id_, "DONE", "ERROR")["best"]["value"] == 0
    (output,) = (daemon.data / id_ / "trials").glob("*/stdout")
    assert output.read_text() == "/dev/null\n"
    daemon.call("POST", "/experiments/stop")
    assert daemon.terminate() == 0
