"""A program that launches an experiment as programs for NNI do, the same for `nni` and for the stand-in."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: One more than run at a time.
TRIALS = 3
#: Trains on the digits that come with scikit-learn; its result repeats its parameters.
TRIAL = """
import nni
from sklearn.datasets import load_digits
from sklearn.svm import SVC

parameters = {"C": 1.0, "kernel": "rbf", **nni.get_next_parameter()}
images, digits = load_digits(return_X_y=True)
model = SVC(**parameters).fit(images[:200], digits[:200])
nni.report_intermediate_result(0.0)
nni.report_final_result({"default": model.score(images[1000:1200], digits[1000:1200]), **parameters})
"""
#: `sys.argv`: the port. It prints what the program saw, and what it saw after it resumed the experiment.
PROGRAM = """
import json, sys
from pathlib import Path
from nni.experiment import Experiment

port = int(sys.argv[1])
experiment = Experiment("local")
experiment.config.experiment_name = "launched"
experiment.config.trial_command = "python3 trial.py"
experiment.config.trial_code_directory = Path(".")
experiment.config.search_space = {
    "C": {"_type": "loguniform", "_value": [0.01, 100]},
    "kernel": {"_type": "choice", "_value": ["linear", "rbf", "poly", "sigmoid"]},
}
experiment.config.tuner.name = "TPE"
experiment.config.tuner.class_args["optimize_mode"] = "maximize"
experiment.config.max_trial_number = 3
experiment.config.trial_concurrency = 2

def seen():
    trials = experiment.list_trial_jobs()
    results = experiment.get_job_metrics()
    return {
        "statistics": experiment.get_job_statistics(),
        "profile": sorted(experiment.get_experiment_profile()),
        "trials": [
            [t.trialJobId, t.status, t.hyperParameters[0].parameters, t.finalMetricData[0].data] for t in trials
        ],
        "fields": sorted(vars(trials[0])),
        "last": {id: found[-1].data for id, found in results.items()},
        "export": [[one.trialJobId, one.parameter, one.value] for one in experiment.export_data()],
    }

done = experiment.run(port)
first = seen()
experiment.stop()

experiment = Experiment(None, id=experiment.id)
assert experiment.has_checkpoint()
resumed = experiment.resume(port, wait_completion=False)
second = seen()
experiment.stop()
print("FOUND", json.dumps({"id": experiment.id, "done": done, "first": first, "second": second}))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path, **more: str) -> dict[str, str]:
    """NNI's client sends what is for localhost to a proxy, too; a trial's Python is named by the PATH."""
    dropped = ("_proxy", "pythonpath")
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith(dropped)}
    return {**kept, "HOME": str(home), "USER": "nobody", "NNI_MANAGER_DATA": str(home / "nni-experiments"), **more}


def found(stdout: str) -> dict[str, Any]:
    (line,) = [line for line in stdout.splitlines() if line.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))  # type: ignore[no-any-return]


def judge(seen: dict[str, Any]) -> None:
    """All trials are there, each result is its parameters' own, and a resumed experiment has the same."""
    first = seen["first"]
    assert seen["done"] is True and seen["second"]["trials"] == first["trials"]
    assert first["statistics"] == [{"trialJobStatus": "SUCCEEDED", "trialJobNumber": TRIALS}]
    assert first["last"] == {id: result for id, _, _, result in first["trials"]}
    assert first["export"] == [[id, parameters, result] for id, _, parameters, result in first["trials"]]
    assert {"params", "id", "execDuration", "logDir", "startTime", "nextSequenceId", "revision"} <= {*first["profile"]}
    assert all({**result, **parameters} == result for _, _, parameters, result in first["trials"])
