"""Two training services in one experiment: faults of one do not affect the other, and lose no result."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon, assert_gone, picked
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

TRIALS = 40
#: Seconds after the start at which the second service loses a machine, then becomes unreachable, then loses its
#: credentials permanently.
MACHINE, OUTAGE, CREDENTIALS_S = (2.0, 4.0), (7.0, 3.0), 11.0
#: Maximum seconds without a start on the first service while it has a free slot; a trial takes 1.2 s.
MOST_QUIET_S = 4.0


def test_held_service_does_not_stop_the_other(daemon: Daemon, code: Path) -> None:
    id_ = daemon.create(_config(), code, {**ENVIRONMENT, "TOKEN": "old"})
    with Watcher(daemon, id_) as watcher:
        until(lambda: any("wrongCredentials" in sentence for sentence in watcher.sentences), 60)
        assert daemon.status(id_)["hold"] is None, "the other service goes on"
        daemon.call("PUT", f"/experiments/{id_}/credentials", json={"secrets": {"${TOKEN}": "new"}})
        daemon.wait(id_, "DONE", timeout_s=60)
    _check_results(daemon, id_)
    assert watcher.silent == [], "a waiting trial does not say why"
    assert watcher.longest_quiet_s < MOST_QUIET_S
    for word in ("unreachable", "outage", "wrongCredentials"):
        assert any(word in sentence for sentence in watcher.sentences), (word, watcher.sentences)
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _config() -> dict[str, Any]:
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    service = {"platform": "scripted", "launch": "process", "channel": "pull"}
    machines = [{"name": "m1", "places": 2}, {"name": "m2", "places": 2}]
    fate = {
        "unreachable": [{"machine": "m1", **_span(MACHINE)}],
        "unreachableGrace": "1s",
        "outage": _span(OUTAGE),
        "wrongCredentials": {"after": CREDENTIALS_S},
        "token": "${TOKEN}",
        "acceptedToken": hashlib.sha256(b"new").hexdigest(),
    }
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sleep 1.2; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 8,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": [{**service, "trialConcurrency": 2}, {**service, "machines": machines, **fate}],
    }


def _span(span: tuple[float, float]) -> dict[str, float]:
    return {"after": span[0], "for": span[1]}


class Watcher:
    """Polls all trials, like a user."""

    def __init__(self, daemon: Daemon, id_: str) -> None:
        self._daemon = daemon
        self._id = id_
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.silent: list[Any] = []
        self.sentences: set[str] = set()
        self.longest_quiet_s = 0.0
        self._first: set[str] = set()
        self._news_s = time.monotonic()

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            for trial in self._daemon.trials(self._id, status="WAITING"):
                wait = trial["wait"] or {"code": "", "sentence": ""}
                self.sentences.add(wait["sentence"])
                if not wait["code"] or not wait["sentence"]:
                    self.silent.append((trial["id"], wait))
            self._watch_the_first()

    def _watch_the_first(self) -> None:
        """Trials that the first service accepted, and the time since the last, while more trials wait."""
        trials = self._daemon.trials(self._id)
        first = {trial["id"] for trial in trials if trial["service"] == "scripted"}
        if first != self._first or len(trials) >= TRIALS:
            self._first, self._news_s = first, time.monotonic()
        self.longest_quiet_s = max(self.longest_quiet_s, time.monotonic() - self._news_s)


def _check_results(daemon: Daemon, id_: str) -> None:
    """Check that every trial has its own result.

    Only attempts of the second service that were lost, or that reappeared during the next one, have successors.
    """
    until(lambda: not {"PENDING", "RUNNING"} & {attempt["state"] for attempt in daemon.attempts(id_)}, 30)
    ends = picked(daemon.trials(id_), "sequenceId", "status", "finalResult")
    assert ends == [(number, "SUCCEEDED", str(number)) for number in range(TRIALS)]
    states = Counter(picked(daemon.attempts(id_), "service", "state"))
    print(states)
    over = [("scripted-2", "LOST"), ("scripted-2", "CANCELLED")]
    assert set(states) <= {("scripted", "SUCCEEDED"), ("scripted-2", "SUCCEEDED"), *over}
    assert states["scripted", "SUCCEEDED"] + states["scripted-2", "SUCCEEDED"] == TRIALS
    assert sum(states[one] for one in over) <= 2, "two places of the machine that was lost"
