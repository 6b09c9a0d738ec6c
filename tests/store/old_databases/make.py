"""Makes the sample database of the present schema, once per release: ``python tests/store/old_databases/make.py``.

A file of a released schema is never made again: what it shows is that an old folder still opens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.ids import job_name
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments, runners
from nni_manager.store.migrate import migrate

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.store import life  # noqa: E402

CONFIG = (
    '{"experimentName": "sample", "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": "true",'
    ' "trialCodeDirectory": "/tmp", "trialConcurrency": 2, "tuner": {"name": "Random"},'
    ' "trainingService": {"platform": "local"}}'
)


def make(path: Path) -> None:
    """One experiment with a trial of each kind."""
    migrate(path, "experiment")
    connection = connect(path)
    experiments.create(
        connection,
        id="old",
        config=CONFIG,
        interpreter="/usr/bin/python3",
        folder="/home/user/nni-experiments/old",
        now_ms=1000,
    )
    life.add(connection, "good1", 0, at=1001)
    job = life.start(connection, "good1", at=1002, experiment="old")
    life.report(connection, job, life.intermediate(0.25), ("final", '{"default": 0.75}', {"default": 0.75}), at=1003)
    life.end(connection, "good1", at=1004)
    life.add(connection, "fail1", None, at=1005)
    life.start(connection, "fail1", at=1006, experiment="old")
    life.end(connection, "fail1", "FAILED", "USER_CODE", "exit code 1", at=1007)
    life.add(connection, "runs1", 1, at=1008)
    life.report(connection, life.start(connection, "runs1", at=1009, experiment="old"), life.intermediate(0.5), at=1010)
    runners.greet(connection, job_name("old", "runs1", 1), version="0.6.0", channel="push")
    life.add(connection, "wait1", 2, at=1011)
    experiments.add_import(connection, '[{"parameter": {"x": 0.5}, "value": 1}]', 1012)
    experiments.set_hold(connection, Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised", details="Traceback"))
    experiments.set_endpoint(connection, Endpoint(port=8080, prefix="my/pre"))
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    number = len(list((HERE.parents[2] / "nni_manager/store/migrations/experiment").glob("*.sql")))
    target = HERE / f"{number:04}.sqlite"
    if target.exists():
        sys.exit(f"{target.name} is there; a sample of a released schema is never made again")
    make(target)
