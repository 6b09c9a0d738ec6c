"""Every nnictl command once, as a real process with a real daemon: success and failure."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.command_line import RUN_ON, CommandLine, command_line, state_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

REPORT = """
for value in 0.1 0.2; do echo '{"type": "intermediate", "value": '$value'}' >> "$NNI_OUTBOX"; done
echo '{"type": "final", "value": {"default": 0.5, "loss": 2}}' >> "$NNI_OUTBOX"
"""
TUNER = '''
"""A tuner in the style of NNI's users."""

from nni.tuner import Tuner


class Counting(Tuner):
    def __init__(self, start=0):
        self.number = start

    def update_search_space(self, search_space):
        pass

    def generate_parameters(self, parameter_id, **kwargs):
        self.number += 1
        return {"x": self.number}

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        pass
'''


@dataclass
class Running:
    """A daemon with three experiments: one done, one with running trials, one stopped."""

    line: CommandLine
    done: str
    running: str
    stopped: str

    def trial(self) -> str:
        """A running experiment."""
        self.line.daemon.wait_for(self.running, lambda state: state["counts"].get("RUNNING"))
        trials = json.loads(self.line.good("trial", "ls", self.running, "--json"))
        return next(trial["id"] for trial in trials if trial["status"] == "RUNNING")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with command_line(tmp_path_factory.mktemp("nnictl")) as line:
        daemon = line.serve("--port", "0")
        done = line.create(trialCommand=REPORT)
        running = line.create(trialCommand=RUN_ON)
        stopped = line.create(trialCommand=RUN_ON)
        state_of(daemon, stopped, RUNNING=2)
        line.good("stop", stopped)
        daemon.wait(done, "DONE")
        state_of(daemon, running, RUNNING=2)
        yield Running(line, done, running, stopped)


# experiment


def test_experiment_list(world: Running) -> None:
    lines = world.line.good("experiment", "list").splitlines()
    assert {line.split()[0] for line in lines[1:]} >= {world.done, world.running}
    everything = json.loads(world.line.good("experiment", "list", "--all", "--json"))
    assert {world.done, world.running, world.stopped} <= {one["id"] for one in everything}


def test_experiment_show_and_status(world: Running) -> None:
    shown = world.line.good("experiment", "show", world.done[:5])
    assert "4 SUCCEEDED" in shown and "best" in shown
    status = json.loads(world.line.good("experiment", "status", world.done, "--json"))
    assert (status["status"], status["errors"]) == ("DONE", [])
    assert "4/4 done" in world.line.good("experiment", "status", world.done)
    code, sentence = world.line.bad("experiment", "show")
    assert code == 2 and "experiments are open" in sentence
    code, sentence = world.line.bad("experiment", "show", "nope")
    assert code == 1 and "cannot find experiment nope" in sentence


def test_experiment_export_and_import(world: Running, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert "4 trials are in" in world.line.good("experiment", "export", world.done, "-t", "json", "-f", out, "-i")
    records = json.loads(out.read_text())
    of_nni = {"parameter", "value", "trialJobId", "intermediate"}
    assert len(records) == 4
    assert all(set(one) == of_nni | {"sequenceId", "status", "startedMs", "endedMs"} for one in records)
    assert all(one["value"] == {"default": 0.5, "loss": 2} for one in records)
    assert all(one["intermediate"][:2] == [0.1, 0.2] and len(one["intermediate"]) == 3 for one in records)
    world.line.good("experiment", "export", world.done, "--type", "csv", "--filename", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["default"], row["loss"]) for row in rows] == [("0.5", "2")] * 4 and "x" in rows[0]
    assert "the tuner gets 4 results" in world.line.good("experiment", "import", world.running, "--filename", out)
    code, sentence = world.line.bad("experiment", "import", world.stopped, "-f", out)
    assert code == 1 and "is stopped" in sentence
    code, sentence = world.line.bad("experiment", "import", world.running, "-f", tmp_path / "nowhere")
    assert code == 2 and "cannot be read" in sentence
    code, sentence = world.line.bad("experiment", "export", world.done, "-t", "csv", "-f", tmp_path / "no" / "where")
    assert code == 1 and "cannot be written" in sentence


def test_export_of_a_closed_experiment(world: Running, tmp_path: Path) -> None:
    world.line.good("experiment", "export", world.stopped, "-t", "csv", "-f", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows and all((row["status"], row["reward"]) == ("USER_CANCELED", "") for row in rows)


def test_experiment_delete(world: Running) -> None:
    first, second = (world.line.create(trialCommand=RUN_ON) for _ in range(2))
    code, sentence = world.line.bad("experiment", "delete", first, "--yes")
    assert code == 1 and "is running; stop it first" in sentence
    world.line.good("stop", first, second)
    assert world.line.run("experiment", "delete", first).returncode == 1, "no terminal to confirm on"
    assert (world.line.data / first).exists()
    world.line.good("experiment", "delete", first, second, "--yes")
    assert not (world.line.data / first).exists() and not (world.line.data / second).exists()
    assert world.line.bad("experiment", "delete")[0] == 2


# trial, update


def test_trial_ls(world: Running) -> None:
    assert len(world.line.good("trial", "ls", world.done).splitlines()) == 5
    head = json.loads(world.line.good("trial", "ls", world.done, "--head", "2", "--json"))
    assert [trial["finalValue"] for trial in head] == [0.5, 0.5]
    assert len(json.loads(world.line.good("trial", "ls", world.done, "--tail", "1", "--json"))) == 1
    assert world.line.bad("trial", "ls", world.done, "--head", "1", "--tail", "1")[0] == 2


def test_trial_kill(world: Running) -> None:
    trial = world.trial()
    assert trial in world.line.good("trial", "kill", world.running, "--trial_id", trial)
    world.line.daemon.wait_for(world.running, lambda state: state["counts"].get("USER_CANCELED"))
    code, sentence = world.line.bad("trial", "kill", world.running, "-T", "zzzzz")
    assert code == 1 and "cannot find trial zzzzz" in sentence
    code, sentence = world.line.bad("trial", "kill", world.stopped, "-T", "zzzzz")
    assert code == 1 and "cannot find trial zzzzz" in sentence


def test_update(world: Running, tmp_path: Path) -> None:
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 2]}}')
    world.line.good("update", "searchspace", world.running, "--filename", tmp_path / "space.json")
    world.line.good("update", "concurrency", world.running, "--value", "1")
    world.line.good("update", "duration", world.running, "-v", "2h")
    world.line.good("update", "trialnum", world.running, "-v", "50")
    config = json.loads(world.line.good("config", "show", world.running))
    assert (config["trialConcurrency"], config["maxTrialNumber"], config["maxExperimentDuration"]) == (1, 50, "2h")
    assert config["searchSpace"] == {"x": {"_type": "uniform", "_value": [0, 2]}}
    assert world.line.bad("update", "concurrency", world.running, "-v", "0")[0] == 2
    code, sentence = world.line.bad("update", "duration", world.running, "-v", "soon")
    assert code == 2 and "maxExperimentDuration" in sentence
    code, sentence = world.line.bad("update", "trialnum", world.stopped, "-v", "3")
    assert code == 1 and "is stopped" in sentence


# what can be read


def test_config(world: Running) -> None:
    assert json.loads(world.line.good("config", "show", world.stopped))["trialCommand"] == RUN_ON
    assert "valid; at most 4 trials of Random on local" in world.line.good(
        "config", "check", world.line.config("c.yml")
    )
    assert world.line.run("config", "check", world.line.config("c.yml", trialCommand=None)).returncode == 2


def test_log(world: Running) -> None:
    path = world.line.good("log", "stdout", world.done, "--path").strip()
    assert world.line.good("log", "stdout", world.done) == Path(path).read_text() != ""
    last = world.line.good("log", "stdout", world.done, "--tail", "1")
    assert Path(path).read_text().endswith(last) and len(last.splitlines()) == 1
    assert len(world.line.good("log", "stdout", world.done, "--head", "1").splitlines()) == 1
    world.line.good("log", "stderr", world.done)
    trial = world.trial()
    assert "running\n" in world.line.good("log", "trial", world.running, "--trial_id", trial)
    assert trial in world.line.good("log", "trial", world.running)
    assert world.line.bad("log", "trial", world.running, "-T", "zzzzz")[0] == 1


def test_webui_url(world: Running) -> None:
    listeners = world.line.daemon.call("GET", "/daemon")["listeners"]
    (service,) = [listener["address"] for listener in listeners if listener["kind"] == "service"]
    assert world.line.good("webui", "url", world.done) == f"{service}/experiments/{world.done}\n"


def test_top(world: Running) -> None:
    picture = world.line.good("top", "--time", "1")
    assert world.done in picture and world.running in picture and world.stopped not in picture
    assert world.line.bad("top", "-t", "0")[0] == 2


def test_platform_clean(world: Running) -> None:
    assert "nothing to clean" in world.line.good("platform", "clean", "--config", world.line.config("p.yml"))


# algo


def test_registered_tuner_is_used_by_its_name(world: Running) -> None:
    folder = world.line.folder / "algorithm"
    folder.mkdir()
    (folder / "counting.py").write_text(TUNER)
    meta = folder / "meta.yml"
    meta.write_text("algoType: tuner\nbuiltinName: Counting\nclassName: counting.Counting\nclassArgs: {start: 10}\n")
    assert "is registered" in world.line.good("algo", "register", "--meta_path", meta)
    assert "Counting" in world.line.good("algo", "list")
    assert json.loads(world.line.good("algo", "show", "counting"))["codeDirectory"] == str(folder)
    tuner = world.line.config("counting.yml", tuner={"name": "Counting"}, trialCommand=REPORT, trialConcurrency=1)
    assert "counting.Counting" in world.line.good("config", "check", tuner)
    out = world.line.good("create", "--config", tuner, "--foreground")
    assert "4/4 done" in out
    id_ = out.split("Experiment ", 1)[1].split()[0]
    trials = json.loads(world.line.good("trial", "ls", id_, "--json"))
    assert [trial["parameters"]["x"] for trial in trials] == [11, 12, 13, 14]
    world.line.good("algo", "unregister", "Counting")
    done = world.line.run("create", "-c", tuner)
    assert done.returncode == 2 and "cannot find tuner 'Counting'" in done.stderr
    assert world.line.bad("algo", "unreg", "Counting")[0] == 1
    done = world.line.run("algo", "reg", "-m", folder / "nowhere.yml")
    assert done.returncode == 2 and "cannot be read" in done.stderr


# the rest


@pytest.mark.parametrize(
    "words",
    [
        ["jupyter-extension", "install"],
        ["hello"],
        ["package", "list"],
        ["ss_gen", "-t", "x"],
        ["trainingservice", "list"],
        ["experiment", "save", "--path", "x"],
        ["experiment", "load", "-p", "x", "-c", "y"],
    ],
)
def test_unsupported_commands_say_so(world: Running, words: list[str]) -> None:
    code, sentence = world.line.bad(*words)
    assert code == 1 and len(sentence) > 60


def test_version(world: Running) -> None:
    done: subprocess.CompletedProcess[str] = world.line.run("--version")
    assert done.returncode == 0 and done.stdout.strip().count(".") == 2
