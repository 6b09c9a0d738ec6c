"""A service that behaves like a batch system, through a daemon that is killed between any two of its events."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import user_views
from tests.live_daemon import LISTENING, Daemon, picked
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

Json = dict[str, Any]
NEVER = "the account has no right to partition gpu"
_REPORT = 'report() { echo "{\\"type\\": \\"$1\\", \\"value\\": $2}" >> "$NNI_OUTBOX"; }'


def config(trials: int, *services: Json, command: str = "true", **fields: Any) -> Json:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": trials,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": list(services),
        **fields,
    }


def killed(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start(*LISTENING)


def a_minute_passes(daemon: Daemon, id_: str) -> None:
    """For hopeless waits, while no daemon runs."""
    daemon.kill()
    with contextlib.closing(sqlite3.connect(daemon.data / id_ / "db" / "nni.sqlite")) as connection, connection:
        connection.execute("UPDATE attempts SET hopeless_ms = hopeless_ms - 60000")
    daemon.start(*LISTENING)


def start_job(daemon: Daemon, id_: str) -> None:
    """The platform starts its waiting job after all."""
    (path,) = (daemon.data / id_ / "scripted").glob("*/job.json")
    job = json.loads(path.read_text())
    job["rule"]["delay"] = 0.0
    path.write_text(json.dumps(job))


def service(state: Json, name: str) -> Json:
    (found,) = [one for one in state["services"] if one["name"] == name]
    return dict(found)


def waits(daemon: Daemon, id_: str) -> list[tuple[str, str]]:
    found = [trial["wait"] for trial in daemon.trials(id_, status="WAITING")]
    return [(wait["code"], wait["sentence"]) for wait in found if wait]


def test_job_that_never_starts_holds_its_service_alone(daemon: Daemon, code: Path) -> None:
    hopeless = {"delay": 10_000, "pendingReason": [{"sentence": NEVER, "code": "QUOTA", "hopeless": True}]}
    batch = {"platform": "scripted", "trialConcurrency": 1, "trials": [{**hopeless, "result": 1}]}
    other = {"platform": "scripted", "trialConcurrency": 1, "trials": [{"duration": 0.1, "result": 2}]}
    id_ = daemon.create(config(2, batch, other, maxTrialNumber=6), code)
    until(lambda: ("QUOTA", NEVER) in waits(daemon, id_))
    killed(daemon)
    assert service(daemon.status(id_), "scripted")["status"] != "on hold", "its minute is not over"
    a_minute_passes(daemon, id_)
    state = daemon.wait_for(id_, lambda state: service(state, "scripted")["status"] == "on hold")
    sentence = service(state, "scripted")["sentence"]
    assert NEVER in sentence and f"nnictl trial kill {id_} -T" in sentence
    assert NEVER in user_views.page(daemon, f"/experiments/{id_}")
    assert "on hold since" in user_views.nnictl(daemon, "experiment", "status", id_)
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 5)
    assert daemon.status(id_)["hold"] is None, "the other service goes on"
    killed(daemon)
    daemon.wait_for(id_, lambda state: service(state, "scripted")["status"] == "on hold")
    daemon.kill()
    start_job(daemon, id_)
    daemon.start(*LISTENING)
    daemon.wait(id_, "DONE")
    assert service(daemon.status(id_), "scripted")["status"] == "up", "the hold ended when the job started"
    assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * 6


def test_resume_and_kill_end_the_hold(daemon: Daemon, code: Path) -> None:
    hopeless = {"sentence": NEVER, "code": "QUOTA", "hopeless": True}
    rule = {"match": {"sequence": 0}, "delay": 10_000, "pendingReason": [hopeless]}
    batch = {"platform": "scripted", "trials": [rule, {"duration": 0.1, "result": 2}]}
    id_ = daemon.create(config(1, batch, maxTrialNumber=2), code)
    until(lambda: waits(daemon, id_) == [("QUOTA", NEVER)])
    a_minute_passes(daemon, id_)
    state = daemon.wait_for(id_, lambda state: state["hold"])
    assert state["hold"]["code"] == "NEVER_STARTS" and NEVER in state["hold"]["sentence"]
    daemon.call("POST", f"/experiments/{id_}/resume")
    daemon.wait_for(id_, lambda state: not state["hold"])
    killed(daemon)
    assert daemon.status(id_)["hold"] is None, "for another minute"
    a_minute_passes(daemon, id_)
    daemon.wait_for(id_, lambda state: state["hold"])
    (trial,) = daemon.trials(id_, status="WAITING")
    daemon.call("POST", f"/experiments/{id_}/trials/{trial['id']}/kill")
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status") == [("USER_CANCELED",), ("SUCCEEDED",)]
    assert daemon.status(id_)["hold"] is None


def test_queue_tells_why_a_job_waits_through_kills(daemon: Daemon, code: Path) -> None:
    reasons = [
        {"sentence": "7 jobs are before it", "code": "QUEUED"},
        {"after": "5s", "sentence": "an administrator holds it", "code": "HELD"},
    ]
    batch = {
        "platform": "scripted",
        "trials": [{"delay": "10s", "pendingReason": reasons, "duration": 0.1, "result": 1}],
    }
    id_ = daemon.create(config(1, batch), code)
    for code_, sentence in (("QUEUED", "7 jobs are before it"), ("HELD", "an administrator holds it")):
        until(lambda wait=(code_, sentence): waits(daemon, id_) == [wait])
        killed(daemon)
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)]


#: Waits until the end is announced; the second run reports only that.
_COMMAND = f"""{_REPORT}
if [ "$SLURM_RESTART_COUNT" = 1 ]; then report intermediate 2; sleep 1; report final 3; exit 0; fi
report intermediate 1
until [ -e "$NNI_SYS_DIR/ending" ]; do sleep 0.02; done
touch "$NNI_SYS_DIR/saved"
sleep 600
"""


def test_announced_and_repeated_run_survives_kills(daemon: Daemon, code: Path) -> None:
    """Killed while the first run runs, after it was announced to end, between the runs, and in the second one."""
    rule = {"notice": "2s", "requeue": "4s"}
    batch = {"platform": "scripted", "launch": "process", "channel": "pull", "trials": [rule]}
    id_ = daemon.create(config(1, batch, command=_COMMAND), code)
    until(lambda: [one["value"] for one in daemon.results(id_)][:1] == [1])
    killed(daemon)
    until(lambda: list(daemon.data.glob(f"{id_}/scripted/**/saved")), 20)
    killed(daemon)
    until(lambda: [one["value"] for one in daemon.results(id_)][:2] == [1, 2], 30)
    killed(daemon)
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status", "attempt", "finalValue") == [("SUCCEEDED", 1, 3)]
    assert picked(daemon.attempts(id_), "containers", "epoch") == [(2, 1)]
    assert [(one["value"], one["epoch"]) for one in daemon.results(id_)] == [(1, 0), (2, 1), (3, 1)]
    (trial,) = daemon.trials(id_)
    log = daemon.data / id_ / "trials" / trial["id"] / "trial.log"
    assert "The platform will soon take this job away." in log.read_text()


@pytest.mark.parametrize(
    ("rule", "attempts"),
    [
        ({"overlooked": {"after": "1s", "for": "1s"}, "duration": "3s", "result": 1}, [("SUCCEEDED", None)]),
        ({"match": {"attempt": 1}, "lost": True, "duration": "1s"}, [("LOST", "PLATFORM"), ("SUCCEEDED", None)]),
        ({"timedOut": True, "duration": "1s", "result": 1}, [("FAILED", None)]),
        (
            {"match": {"attempt": 1}, "preempted": True, "uncounted": True, "duration": "1s"},
            [("PREEMPTED", "UNCOUNTED"), ("SUCCEEDED", None)],
        ),
    ],
    ids=["overlooked", "lost", "timed out", "displaced"],
)
def test_end_by_the_platform_survives_kills(
    daemon: Daemon, code: Path, rule: Json, attempts: list[tuple[str, str | None]]
) -> None:
    """Killed before the end, and after it; confirmation of a loss begins again with each daemon."""
    success = {"duration": 0.1, "result": 1}
    batch = {"platform": "scripted", "confirmLoss": "2s", "trials": [rule, success]}
    id_ = daemon.create(config(1, batch, maxPlatformRetries=1), code)
    until(lambda: daemon.attempts(id_))
    killed(daemon)
    until(lambda: picked(daemon.attempts(id_), "state") != [("PENDING",)])
    killed(daemon)
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status", "finalValue") == [("SUCCEEDED", 1)]
    assert picked(daemon.attempts(id_), "state", "givenUp") == attempts
