"""NNI 3.0's own Python client and command line, unmodified, with an endpoint of ours."""

from __future__ import annotations

import csv
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live_daemon import Daemon
from tests.upstream.warm_python import WarmPython
from tests.waiting import until

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(1200),  # the first test of a session may install nni
    pytest.mark.group("warm_nni3"),  # one is enough
]

#: The first two trials report and succeed; later ones run until stopped.
TRIAL = """
echo '{"type": "intermediate", "value": 0.25}' >> "$NNI_OUTBOX"
[ "$NNI_TRIAL_SEQ_ID" -lt 2 ] || exec sleep 1000
echo '{"type": "final", "value": 0.5}' >> "$NNI_OUTBOX"
"""
#: Start of all code that runs on NNI's client; the value of `found` is returned.
PREAMBLE = """
import json, sys
from dataclasses import asdict
from nni.experiment import Experiment
found = {}
"""
CONNECT = "experiment = Experiment.connect(int(sys.argv[1]))"
#: `connect` knows of no prefix.
BELOW_A_PREFIX = """
experiment = Experiment(None)
experiment.port, experiment.url_prefix = int(sys.argv[1]), "my/pre"
"""
EPILOGUE = "\nprint('FOUND ' + json.dumps(found))\n"


@dataclass(frozen=True)
class Upstream:
    """A user of NNI 3.0, and the experiment that they look at."""

    python: WarmPython
    daemon: Daemon
    id: str
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """Without proxy variables: that client uses a proxy for localhost, too."""
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        kept.pop("PYTHONPATH", None)
        return {**kept, "HOME": self.daemon.environment["HOME"], "USER": "nobody"}

    def run(self, code: str, connect: str = CONNECT, port: int | None = None) -> Any:
        """Run code with a connected `experiment` of NNI's client; returns `found`."""
        code = PREAMBLE + connect + code + EPILOGUE
        command = ("python3", "-c", code, port or self.port)
        done = self.python.run(*command, cwd=self.daemon.data.parent, environment=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr + self.daemon.log()
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        return json.loads(line.removeprefix("FOUND "))

    def nnictl(self, *words: object) -> str:
        """Output of NNI's command line, which must not report an error."""
        done = self.python.run("nnictl", *words, cwd=self.daemon.data.parent, environment=self.environment)
        assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout + done.stderr + self.daemon.log()
        return done.stdout

    def state(self) -> dict[str, Any]:
        return self.daemon.status(self.id)


@pytest.fixture
def upstream(tmp_path: Path, warm_nni3: WarmPython) -> Iterator[Upstream]:
    """An experiment in NNI's list, with two succeeded and two running trials."""
    data, home = tmp_path / "home" / "nni-experiments", tmp_path / "home"
    for folder in (home, data, tmp_path / "code"):
        folder.mkdir()
    daemon = Daemon(data, environment={"HOME": str(home)}).start("--port", "0")
    try:
        found = _create(daemon, tmp_path / "code")
        upstream = Upstream(warm_nni3, daemon, found["id"], found["endpoint"]["port"])
        daemon.wait_for(
            upstream.id, lambda state: state["counts"].get("SUCCEEDED") == state["counts"].get("RUNNING") == 2
        )
        until(lambda: registered(tmp_path / "home").get(upstream.id, {}).get("port") == upstream.port)
        yield upstream
    finally:
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()


def _create(daemon: Daemon, code: Path) -> dict[str, Any]:
    config = {
        "experimentName": "seen by NNI",
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": TRIAL,
        "trialCodeDirectory": str(code),
        "trialConcurrency": 2,
        "maxTrialNumber": 10,
        "maxExperimentDuration": "1h",
        "experimentWorkingDirectory": str(daemon.data),
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    body = {
        "config": json.dumps(config),
        "directory": str(code),
        "environment": dict(os.environ),
        "interpreter": sys.executable,
        "endpoint": {"port": 0},
    }
    id_ = daemon.call("POST", "/experiments", json=body)["id"]
    return daemon.status(id_)


def registered(home: Path) -> dict[str, Any]:
    """NNI's list of experiments."""
    path = home / "nni-experiments" / ".experiment"
    return json.loads(path.read_text()) if path.exists() else {}


def test_client_reads_everything(upstream: Upstream) -> None:
    found = upstream.run("""
found["id"] = experiment.id
found["status"] = experiment.get_status()
found["trials"] = [asdict(trial) for trial in experiment.list_trial_jobs()]
first = found["trials"][0]["trialJobId"]
found["trial"] = asdict(experiment.get_trial_job(first))
found["metrics"] = {id: [asdict(m) for m in all] for id, all in experiment.get_job_metrics().items()}
found["own"] = {id: [asdict(m) for m in all] for id, all in experiment.get_job_metrics(first).items()}
found["statistics"] = experiment.get_job_statistics()
found["profile"] = experiment.get_experiment_profile()
found["export"] = [asdict(result) for result in experiment.export_data()]
""")
    assert (found["id"], found["status"]) == (upstream.id, "RUNNING")
    trials = found["trials"]
    assert [trial["sequenceId"] for trial in trials] == [0, 1, 2, 3]
    assert [trial["status"] for trial in trials] == ["SUCCEEDED", "SUCCEEDED", "RUNNING", "RUNNING"]
    assert found["trial"] == trials[0] and Path(trials[0]["logPath"]).is_dir()
    assert [metric["data"] for metric in trials[0]["finalMetricData"]] == [0.5]
    first = trials[0]["trialJobId"]
    assert [metric["data"] for metric in found["metrics"][first]] == [0.25, 0.5]
    assert found["own"] == {first: found["metrics"][first]}
    assert found["statistics"] == [
        {"trialJobStatus": "SUCCEEDED", "trialJobNumber": 2},
        {"trialJobStatus": "RUNNING", "trialJobNumber": 2},
    ]
    profile = found["profile"]
    assert profile["params"]["experimentName"] == "seen by NNI" and profile["nextSequenceId"] == 4
    assert [(one["trialJobId"], one["value"]) for one in found["export"]] == [
        (trial["trialJobId"], 0.5) for trial in trials[:2]
    ]
    assert found["export"][0]["parameter"] == trials[0]["hyperParameters"][0]["parameters"]


def test_client_changes_the_experiment(upstream: Upstream) -> None:
    found = upstream.run("""
experiment.update_trial_concurrency(3)
experiment.update_max_experiment_duration("2h")
experiment.update_search_space({"y": {"_type": "choice", "_value": [1, 2]}})
experiment.update_max_trial_number(7)
found["params"] = experiment.get_experiment_profile()["params"]
found["running"] = [t.trialJobId for t in experiment.list_trial_jobs() if t.status == "RUNNING"]
experiment.kill_trial_job(found["running"][0])
found["killed"] = experiment.get_trial_job(found["running"][0]).status
""")
    changed = ("trialConcurrency", "maxExperimentDuration", "searchSpace", "maxTrialNumber")
    assert [found["params"][name] for name in changed] == [3, "2h", {"y": {"_type": "choice", "_value": [1, 2]}}, 7]
    assert found["killed"] == "USER_CANCELED"
    upstream.daemon.wait_for(
        upstream.id,
        lambda state: (
            state["counts"]
            == {
                "SUCCEEDED": 2,
                "USER_CANCELED": 1,
                "RUNNING": 3,
            }
        ),
    )
    config = upstream.state()["config"]
    assert [config[name] for name in changed] == [found["params"][name] for name in changed]


def test_customised_trial_does_not_trip_the_client(upstream: Upstream) -> None:
    found = upstream.run("""
from nni.experiment import rest
found["added"] = rest.post(experiment.port, "/trial-jobs", {"x": 0.125})
found["sources"] = [t.hyperParameters[0].parameter_source for t in experiment.list_trial_jobs()]
""")
    assert found == {"added": {"sequenceId": 4}, "sources": ["algorithm"] * 4 + ["customized"]}


def test_client_stops_the_experiment_without_delay(upstream: Upstream) -> None:
    found = upstream.run("""
import psutil
pid = experiment._proc.pid
experiment.stop()
found["gone"] = not psutil.pid_exists(pid)
""")
    assert found == {"gone": True}
    state = upstream.daemon.wait(upstream.id, "STOPPED")
    assert state["counts"] == {"SUCCEEDED": 2, "USER_CANCELED": 2} and upstream.state()["endpoint"] is None
    assert upstream.daemon.process is not None and upstream.daemon.process.poll() is None


def test_command_line_stops_only_one_experiment(upstream: Upstream, tmp_path: Path) -> None:
    daemon, other = upstream.daemon, _create(upstream.daemon, tmp_path / "code")
    assert daemon.process is not None
    ours, home = daemon.process.pid, tmp_path / "home"
    until(lambda: len({*_processes(home, upstream.id, other["id"]), ours}) == 3)  # each soon gets its own
    assert "success" in upstream.nnictl("stop", upstream.id)
    state = daemon.wait(upstream.id, "STOPPED")
    assert state["counts"] == {"SUCCEEDED": 2, "USER_CANCELED": 2} and upstream.state()["endpoint"] is None
    until(lambda: "pid" not in registered(tmp_path / "home")[upstream.id])
    assert daemon.status(other["id"])["status"] == "RUNNING" and daemon.process.poll() is None


def test_next_daemon_after_a_kill_names_its_own_processes(upstream: Upstream, tmp_path: Path) -> None:
    (before,) = _processes(tmp_path / "home", upstream.id)
    upstream.daemon.kill()
    until(lambda: not psutil.pid_exists(before))
    upstream.daemon.start("--port", "0")
    until(lambda: registered(tmp_path / "home")[upstream.id]["pid"] != before)
    (after,) = _processes(tmp_path / "home", upstream.id)
    assert psutil.pid_exists(after)
    upstream.nnictl("stop", upstream.id)
    upstream.daemon.wait(upstream.id, "STOPPED")


def test_client_stops_a_viewed_experiment(upstream: Upstream) -> None:
    upstream.daemon.call("POST", f"/experiments/{upstream.id}/stop")
    opened = upstream.daemon.call("POST", "/experiments/view", json={"id": upstream.id, "endpoint": {"port": 0}})
    upstream.run("experiment.stop()", CONNECT + "\n", opened["endpoint"]["port"])
    assert upstream.state()["status"] == "STOPPED" and upstream.state()["endpoint"] is None


def _processes(home: Path, *ids: str) -> list[int]:
    """Entries of NNI's list."""
    until(lambda: all("pid" in registered(home).get(id_, {}) for id_ in ids))
    return [registered(home)[id_]["pid"] for id_ in ids]


def test_client_reads_a_viewed_experiment_below_a_prefix(upstream: Upstream) -> None:
    upstream.daemon.call("POST", f"/experiments/{upstream.id}/stop")
    endpoint = {"port": 0, "urlPrefix": "my/pre"}
    opened = upstream.daemon.call("POST", "/experiments/view", json={"id": upstream.id, "endpoint": endpoint})
    found = upstream.run(
        """
found["status"] = experiment.get_status()
found["trials"] = [t.status for t in experiment.list_trial_jobs()]
found["export"] = [r.value for r in experiment.export_data()]
try:
    experiment.update_trial_concurrency(5)
except Exception as error:
    found["refused"] = error.response.json()["error"]
""",
        BELOW_A_PREFIX,
        opened["endpoint"]["port"],
    )
    assert "readonly mode" in found.pop("refused")
    assert found == {"status": "VIEWED", "trials": ["SUCCEEDED"] * 2 + ["USER_CANCELED"] * 2, "export": [0.5, 0.5]}


def test_command_line_shows_experiments_and_trials(upstream: Upstream) -> None:
    id_ = upstream.id
    assert json.loads(upstream.nnictl("experiment", "status", id_)) == {"status": "RUNNING", "errors": []}
    shown = json.loads(upstream.nnictl("experiment", "show", id_))
    assert shown["id"] == id_ and shown["params"]["maxTrialNumber"] == 10
    listed = upstream.nnictl("experiment", "list")
    assert f"Id: {id_}" in listed and f"Port: {upstream.port}" in listed and "Status: RUNNING" in listed
    trials = json.loads(upstream.nnictl("trial", "ls", id_))
    assert [trial["sequenceId"] for trial in trials] == [0, 1, 2, 3]
    best = json.loads(upstream.nnictl("trial", "ls", id_, "--head", 1))
    assert [trial["status"] for trial in best] == ["SUCCEEDED"]
    config = json.loads(upstream.nnictl("config", "show", id_))
    assert config == shown["params"]
    logs = upstream.nnictl("log", "trial", id_, "--trial_id", trials[0]["trialJobId"])
    assert trials[0]["logPath"] in logs
    assert str(upstream.port) in upstream.nnictl("webui", "url", id_)


def test_command_line_shows_the_logs_and_deletes_them(upstream: Upstream, tmp_path: Path) -> None:
    id_, folder = upstream.id, upstream.daemon.data / upstream.id
    shown, first = upstream.nnictl("log", "stdout", id_).strip(), upstream.nnictl("log", "stdout", id_, "--head", 1)
    assert shown and (folder / "log" / "nnimanager.log").read_text().startswith(shown)
    assert first.strip() == shown.splitlines()[0]
    with (folder / "log" / "dispatcher.log").open("a") as file:
        file.write("said by the tuner\n")
    assert "said by the tuner" in upstream.nnictl("log", "stderr", id_, "--tail", 1)
    upstream.daemon.call("POST", f"/experiments/{id_}/stop")
    until(lambda: registered(tmp_path / "home")[id_]["status"] == "STOPPED")
    upstream.nnictl("experiment", "save", id_, "--path", tmp_path / "saved")
    with zipfile.ZipFile(tmp_path / "saved" / f"nni_experiment_{id_}.zip") as archive:
        assert archive.read("experiment/log/nnictl_stdout.log") == archive.read("experiment/log/nnimanager.log") != b""
    upstream.daemon.call("DELETE", f"/experiments/{id_}")
    assert not folder.exists()


def test_command_line_changes_and_exports(upstream: Upstream, tmp_path: Path) -> None:
    id_ = upstream.id
    space = tmp_path / "space.json"
    space.write_text(json.dumps({"y": {"_type": "choice", "_value": [1, 2]}}))
    for words in (
        ("concurrency", "-v", 3),
        ("duration", "-v", "3h"),
        ("trialnum", "-v", 8),
        ("searchspace", "-f", space),
    ):
        assert "success" in upstream.nnictl("update", words[0], id_, *words[1:])
    config = upstream.state()["config"]
    assert (config["trialConcurrency"], config["maxExperimentDuration"], config["maxTrialNumber"]) == (3, 10800, 8)
    assert config["searchSpace"] == {"y": {"_type": "choice", "_value": [1, 2]}}
    running = [
        one["trialJobId"] for one in json.loads(upstream.nnictl("trial", "ls", id_)) if one["status"] == "RUNNING"
    ]
    upstream.nnictl("trial", "kill", id_, "--trial_id", running[0])
    assert upstream.daemon.call("GET", f"/experiments/{id_}/trials/{running[0]}")["status"] == "USER_CANCELED"
    upstream.nnictl("experiment", "export", id_, "-f", tmp_path / "out.json", "-t", "json", "-i")
    exported = json.loads((tmp_path / "out.json").read_text())
    assert [one["value"] for one in exported] == ["0.5"] * 2
    assert [one["intermediate"] for one in exported] == [["0.25", "0.5"]] * 2
    upstream.nnictl("experiment", "export", id_, "-f", tmp_path / "out.csv", "-t", "csv", "-i")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["reward"], row["intermediate"]) for row in rows] == [("0.5", "[0.25,0.5]")] * 2
    upstream.nnictl("experiment", "import", id_, "-f", _imported(tmp_path))
    # from the database: imported results are only sent to the tuner
    ((imported,),) = upstream.daemon.rows(id_, "SELECT data FROM imports")
    assert json.loads(imported) == [{"parameter": {"y": 1}, "value": 0.25}]


def _imported(folder: Path) -> Path:
    path = folder / "known.json"
    path.write_text(json.dumps([{"parameter": {"y": 1}, "value": 0.25}]))
    return path
