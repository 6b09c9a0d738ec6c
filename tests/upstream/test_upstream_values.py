"""Parameters and results of trials are equal in every client: ours, the REST APIs, and NNI's own client."""

from __future__ import annotations

import csv
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nni_manager import Experiment
from nni_manager.domain.formats import spreadsheet_text
from tests.live_daemon import Daemon
from tests.upstream.test_upstream_clients import Upstream
from tests.upstream.warm_python import WarmPython

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # the first test of a session may install nni

#: NNI_VALUE_EXAMPLES=50: the number of experiments for a release; the first is the simplest.
EXAMPLES = int(os.environ.get("NNI_VALUE_EXAMPLES", "2"))
#: Length of a value whose outbox line is one below the maximum.
LONG = 990_000
TRIAL = """
import nni, os, pickle
with open("values.pickle", "rb") as file:
    value = pickle.load(file)[int(os.environ["NNI_TRIAL_SEQ_ID"])]
nni.report_intermediate_result(value)
nni.report_final_result(value)
"""

_scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=20)
_names = st.text(min_size=1, max_size=12)
_json = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=6
)
_results = st.floats() | st.fixed_dictionaries({"default": st.floats()}, optional={"loss": _json, "név": _json})
_plain_scalars = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9) | st.text(max_size=9)
_spaces = st.dictionaries(
    _names.filter(lambda name: not name.startswith("_")),
    st.builds(
        lambda values: {"_type": "choice", "_value": values},
        st.lists(_plain_scalars, min_size=1),
    ),
    min_size=1,
    max_size=4,
).map(lambda space: {**space, "many": {"_type": "choice", "_value": list(range(32))}})  # enough unlike trials
#: Results that are always included, and their JSON.
ALWAYS = [
    (float("nan"), float("nan")),
    (float("inf"), float("inf")),
    ({"default": -float("inf"), "nested": [float("nan"), {"a": None}]},) * 2,
    (np.float64(0.1), 0.1),
    (np.float32(0.5), 0.5),
    (np.int64(7), 7),
    ({"default": 0.25, "text": "ß" * (LONG // 6)},) * 2,
    (-0.0, -0.0),
    (5e-324, 5e-324),
]


def _text(value: object) -> str:
    """Normal form for comparison: NaN equals itself, 1 differs from 1.0, and the order of names counts."""
    return json.dumps(value, sort_keys=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, warm_nni3: WarmPython) -> Iterator[Upstream]:
    folder = tmp_path_factory.mktemp("values")
    home = folder / "home"
    (home / "nni-experiments").mkdir(parents=True)
    daemon = Daemon(home / "nni-experiments", environment={"HOME": str(home)}).start("--port", "0")
    try:
        yield Upstream(warm_nni3, daemon, "", 0)
    finally:
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(space=_spaces, drawn=st.lists(_results, min_size=4, max_size=6))
def test_values_are_the_same_in_every_client(
    place: Upstream, tmp_path: Path, space: dict[str, Any], drawn: list[Any]
) -> None:
    values = [*ALWAYS, *((value, value) for value in drawn)]
    code = tmp_path / str(len(list(tmp_path.iterdir())))
    code.mkdir()
    (code / "trial.py").write_text(TRIAL)
    (code / "values.pickle").write_bytes(pickle.dumps([value for value, _ in values]))
    seen = _run(place, code, space, len(values))
    expected = [_text(value) for _, value in values]
    parameters = [_text(trial["parameters"]) for trial in _trials(seen)]
    for text in parameters:
        assert all(value in space[name]["_value"] for name, value in json.loads(text).items())
    for client, found in _clients(seen, code).items():
        assert [_text(result) for _, result in found] == expected, client
        assert [_text(each) for each, _ in found] == parameters, client
    _check_csv(_exported(seen, code / "export.csv"), _trials(seen), [value for _, value in values])


def _run(place: Upstream, code: Path, space: dict[str, Any], trials: int) -> Upstream:
    config = {
        "searchSpace": space,
        "trialCommand": f"{sys.executable} trial.py",
        "trialCodeDirectory": str(code),
        "trialConcurrency": 4,
        "maxTrialNumber": trials,
        "experimentWorkingDirectory": str(place.daemon.data),
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    body = {"config": json.dumps(config), "directory": str(code), "environment": dict(os.environ)}
    body |= {"interpreter": sys.executable, "endpoint": {"port": 0}}
    id_ = place.daemon.call("POST", "/experiments", json=body)["id"]
    place.daemon.wait(id_, "DONE", timeout_s=120)
    return Upstream(place.python, place.daemon, id_, place.daemon.status(id_)["endpoint"]["port"])


def _trials(seen: Upstream) -> list[dict[str, Any]]:
    return sorted(seen.daemon.trials(seen.id), key=lambda trial: trial["sequenceId"])


def _clients(seen: Upstream, code: Path) -> dict[str, list[tuple[Any, Any]]]:
    """Client → (parameters, result) of each trial, by number."""
    numbers = {trial["id"]: trial["sequenceId"] for trial in _trials(seen)}

    def ordered(found: dict[str, tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return [found[id_] for id_ in sorted(found, key=lambda id_: numbers[id_])]

    connected = Experiment.connect(seen.id, data_dir=seen.daemon.data)
    trials, exported = connected.trials(), seen.daemon.call("GET", f"/experiments/{seen.id}/export")
    upstream = seen.run(_THEIRS)
    written = json.loads(_exported(seen, code / "export.json").read_text(encoding="utf-8"))
    return {
        "REST, trials": [(trial["parameters"], json.loads(trial["finalResult"])) for trial in _trials(seen)],
        "REST, export": ordered({one["trialJobId"]: (one["parameter"], json.loads(one["value"])) for one in exported}),
        "Python": [(trial.parameters, trial.result) for trial in sorted(trials, key=lambda trial: trial.number)],
        "Python, intermediate": [
            (trial.parameters, connected.intermediate_results(trial.id)[0])
            for trial in sorted(trials, key=lambda trial: trial.number)
        ],
        "NNI's client, trials": ordered({id_: (each, result) for id_, each, result in upstream["trials"]}),
        "NNI's client, metrics": ordered({id_: (each, upstream["last"][id_]) for id_, each, _ in upstream["trials"]}),
        "NNI's client, export": ordered({id_: (each, result) for id_, each, result in upstream["export"]}),
        # a text, and what holds NaN or Infinity, is a text of JSON there
        "nnictl": ordered(
            {
                one["trialJobId"]: (
                    one["parameter"],
                    json.loads(one["value"]) if isinstance(one["value"], str) else one["value"],
                )
                for one in written
            }
        ),
    }


_THEIRS = """
found["trials"] = [
    [one.trialJobId, one.hyperParameters[0].parameters, one.finalMetricData[0].data]
    for one in experiment.list_trial_jobs()
]
found["last"] = {id: metrics[-1].data for id, metrics in experiment.get_job_metrics().items()}
found["export"] = [[one.trialJobId, one.parameter, one.value] for one in experiment.export_data()]
"""


def _exported(seen: Upstream, file: Path) -> Path:
    """The file that our command line exports; its extension is the format."""
    command = [str(Path(sys.executable).with_name("nnictl")), "experiment", "export", seen.id, "--filename", str(file)]
    environment = {**os.environ, "NNI_MANAGER_DATA": str(seen.daemon.data)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file


def _check_csv(file: Path, trials: list[dict[str, Any]], results: list[Any]) -> None:
    """A row per trial, with a column for each parameter, and for the result or each of its entries."""
    csv.field_size_limit(2**24)
    with file.open(encoding="utf-8", newline="") as opened:
        rows = {row["trialJobId"]: row for row in csv.DictReader(opened)}
    assert len(rows) == len(trials)
    for trial, result in zip(trials, results, strict=True):
        row = rows[trial["id"]]
        entries = result if isinstance(result, dict) and _is_finite(result) else {}
        cells = {
            **trial["parameters"],
            **entries,
        }  # as in NNI, an entry goes before a parameter
        assert {name: row[spreadsheet_text(name)] for name in cells} == {n: _cell(value) for n, value in cells.items()}
        assert entries or _text(json.loads(row["reward"])) == _text(result)


def _is_finite(value: object) -> bool:
    """Whether the text is standard JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
    return spreadsheet_text(text)
