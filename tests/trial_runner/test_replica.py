"""Which of a job's processes reports, told by what operators put into the environment."""

from __future__ import annotations

import json

import pytest

from trial_runner import protocol
from trial_runner.runner import settings

pytestmark = pytest.mark.unit


def tf_config(kind: str, index: int) -> str:
    return json.dumps({"cluster": {}, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("told", "folder"),
    [
        ({"TF_CONFIG": tf_config("worker", 0)}, ""),
        ({"TF_CONFIG": tf_config("worker", 1)}, "/replicas/worker-1"),
        ({"TF_CONFIG": tf_config("Worker", 2)}, "/replicas/worker-2"),
        ({"TF_CONFIG": "of the user"}, ""),
        ({"FC_TASK_INDEX": "0"}, ""),
        ({"FC_TASK_INDEX": "3"}, "/replicas/worker-3"),
        ({"ADAPTDL_REPLICA_RANK": "1"}, "/replicas/worker-1"),
        ({"RANK": "0"}, ""),
        ({"RANK": "0", protocol.ENV_REPORTER: "0"}, "/replicas/worker-0"),
    ],
)
def test_first_replica_of_role_reports_in_attempt_folder(told: dict[str, str], folder: str) -> None:
    environment = {protocol.ENV_ROLE: "worker", protocol.ENV_SYSTEM_DIR: "/a", protocol.ENV_REPORTER: "1", **told}
    settings.settle_replica(environment)
    assert environment[protocol.ENV_SYSTEM_DIR] == f"/a{folder}"
    assert environment[protocol.ENV_REPORTER] == ("0" if folder else "1")


def test_single_process_keeps_its_folder() -> None:
    environment = {"RANK": "1"}
    settings.settle_replica(environment)
    assert environment == {"RANK": "1"}
