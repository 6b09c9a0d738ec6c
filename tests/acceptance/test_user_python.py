"""Custom tuners and assessors in the user's Python: its selection, its requirements, and import errors.

That Python is a virtual environment without our packages, with a module that exists only there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import CommandLine, id_in
from tests.acceptance.lines_of_one_daemon import LineOfMany, line_of, serving
from tests.trial_runner.advisors import RACING

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.true_start,
    pytest.mark.timeout(60),
    pytest.mark.group("user_python"),
]

TUNER = """
import sys

import only_in_this_python
from nni.tuner import Tuner


class Mine(Tuner):
    def update_search_space(self, search_space): pass
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass
    def generate_parameters(self, parameter_id, **kwargs):
        ours = [name for name in ("nni_manager", "pydantic") if name in sys.modules]
        return {"number": only_in_this_python.NUMBER, "prefix": sys.prefix, "ours": ours}
"""
ASSESSOR = """
import only_in_this_python
from nni.assessor import AssessResult, Assessor


class Strict(Assessor):
    def assess_trial(self, trial_job_id, trial_history):
        return AssessResult.Good if trial_history[-1] < only_in_this_python.NUMBER else AssessResult.Bad
"""
#: Reports 1, then 100 until stopped.
ENDLESS = """echo '{"type": "intermediate", "value": 1}' >> "$NNI_OUTBOX"
while :; do echo '{"type": "intermediate", "value": 100}' >> "$NNI_OUTBOX"; sleep 0.2; done"""
#: Virtual environments, and the number in a module of each.
PYTHONS = {"first": 42, "second": 43}
MINE = {"className": "mine.Mine", "codeDirectory": "."}
STRICT = {"className": "strict.Strict", "codeDirectory": "."}


class Home:
    """Two Pythons of a user, and a code directory."""

    def __init__(self, line: LineOfMany, pythons: Path) -> None:
        self.line = line
        self.first, self.second = (line.folder / name for name in PYTHONS)
        for name in PYTHONS:
            (line.folder / name).symlink_to(pythons / name)
        for name, text in (("mine", TUNER), ("strict", ASSESSOR), ("advisor", RACING)):
            (line.folder / f"{name}.py").write_text(text)
        line.environment["PATH"] = f"{self.first / 'bin'}:{line.environment['PATH']}"

    def parameters(self, id_: str) -> dict[str, Any]:
        """Run an experiment to its end; returns the parameters of the first trial."""
        self.line.daemon.wait(id_, "DONE", timeout_s=30)
        return dict(self.line.daemon.trials(id_)[0]["parameters"])


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pythons")
    for name, number in PYTHONS.items():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / name)], check=True)
        (packages,) = (folder / name).glob("lib/python*/site-packages")
        (packages / "only_in_this_python.py").write_text(f"NUMBER = {number}\n")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, pythons: Path, server: CommandLine) -> Iterator[Home]:
    with line_of(tmp_path, server) as line:
        yield Home(line, pythons)


def test_users_tuner_runs_in_the_callers_python(home: Home) -> None:
    made = home.parameters(home.line.create(tuner=MINE, maxTrialNumber=1))
    assert made == {"number": 42, "prefix": str(home.first), "ours": []}


def test_field_overrules_the_path_and_the_option_the_field(home: Home) -> None:
    fields = {"tuner": MINE, "maxTrialNumber": 1, "tunerPython": "second/bin/python3"}
    assert home.parameters(home.line.create(**fields))["prefix"] == str(home.second)
    option = ("--tuner-python", "first/bin/python3")
    id_ = id_in(home.line.good("create", "--config", home.line.config(**fields), *option))
    assert home.parameters(id_)["prefix"] == str(home.first)


def test_experiment_keeps_its_python_after_resume(home: Home) -> None:
    """Also after a resume from a shell with another Python."""
    id_ = home.line.create(tuner=MINE, maxTrialNumber=1)
    home.parameters(id_)
    home.line.good("stop", id_)
    home.line.environment["PATH"] = home.line.environment["PATH"].replace(str(home.first), str(home.second))
    home.line.good("resume", id_)
    home.line.good("update", "trialnum", id_, "--value", 2)
    home.line.daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 2)
    trials = home.line.daemon.trials(id_)
    assert [trial["parameters"]["prefix"] for trial in trials] == [str(home.first)] * 2


@pytest.mark.parametrize(
    ("tuner", "assessor"), [(MINE, STRICT), ({"name": "Random"}, STRICT), (MINE, {"name": "Medianstop"})]
)
def test_tuner_and_assessor_run_each_in_their_python(
    home: Home, tuner: dict[str, Any], assessor: dict[str, Any]
) -> None:
    """Built-in classes run in the daemon's Python, custom ones in the user's."""
    good, ending = """echo '{"type": "final", "value": 2}' >> "$NNI_OUTBOX" """, ENDLESS
    if assessor.get("name"):  # the first two that end make the median that the third one is compared with
        report = """echo '{"type": "intermediate", "value": 200}' >> "$NNI_OUTBOX"\n"""
        ending = f'if [ "$NNI_TRIAL_SEQ_ID" -lt 2 ]; then {report}{good}; else\n{ENDLESS}\nfi'
    fields = {"tuner": tuner, "assessor": assessor, "trialCommand": ending, "trialConcurrency": 1, "maxTrialNumber": 3}
    id_ = home.line.create(**fields)
    counts = home.line.daemon.wait(id_, "DONE", timeout_s=40)["counts"]
    assert counts == ({"SUCCEEDED": 2, "EARLY_STOPPED": 1} if assessor.get("name") else {"EARLY_STOPPED": 3})


BROKEN = {
    "a missing module": (
        "import surely_not_installed\n",
        "ModuleNotFoundError: No module named 'surely_not_installed'",
    ),
    "a syntax error": ("def broken(:\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
    "an exit": ("import sys; sys.exit(3)\n", "SystemExit: 3"),
    "a process that ends": ("import os; print('last words', flush=True); os._exit(3)\n", "last words"),
    "arguments that are missing": (
        "class Mine:\n    def __init__(self, seed): pass\n",
        "classArgs do not fit its __init__: missing a required argument: 'seed'; it takes (seed).",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_unimportable_class_is_refused_and_leaves_nothing(home: Home, fault: str) -> None:
    text, words = BROKEN[fault]
    known, folders = home.line.experiments(), set(home.line.data.iterdir())
    (home.line.folder / "mine.py").write_text(text)
    file = home.line.config(tuner=MINE)
    code, complaint = home.line.bad("create", "--config", file)
    assert code == 2
    assert complaint.startswith(
        f"{file}: tuner.className: mine.Mine cannot be used by {home.first}/bin/python3: {words}"
    )
    assert home.line.bad("config", "check", file) == (2, complaint), "the same verdict without a daemon"
    listed = json.loads(home.line.good("experiment", "list", "--all", "--json"))
    assert {one["id"] for one in listed} == home.line.experiments() == known
    assert set(home.line.data.iterdir()) == folders
    assert not list(home.line.folder.rglob("__pycache__/mine*")), "it was only looked at"


def test_all_faults_of_classes_are_reported_at_once(home: Home) -> None:
    file = home.line.config(tuner={**MINE, "className": "mine.Missing"}, assessor={**STRICT, "className": "nowhere.A"})
    done = home.line.run("create", "--config", file)
    assert [line.split(": ", 2)[1] for line in done.stderr.splitlines()] == ["tuner.className", "assessor.className"]
    assert "module 'mine' has no class 'Missing'" in done.stderr and "No module named 'nowhere'" in done.stderr


@pytest.mark.parametrize("section", ["tuner", "advisor"])
def test_advisor_proposes_and_stops_trials(home: Home, section: str) -> None:
    """An advisor runs in the user's Python without NNI; its trials are stopped at their first result."""
    fields: dict[str, Any] = {"tuner": None, section: {"className": "advisor.Racing", "codeDirectory": "."}}
    command = ENDLESS.replace("100", "-1")
    id_ = home.line.create(**fields, maxTrialNumber=3, trialConcurrency=2, trialCommand=command)
    state = home.line.daemon.wait(id_, "DONE", timeout_s=40)
    assert state["counts"] == {"EARLY_STOPPED": 3}
    trials = sorted(home.line.daemon.trials(id_), key=lambda trial: int(trial["sequenceId"]))
    assert [trial["parameters"]["x"] for trial in trials] == [1, 2, 3]
    told = trials[2]["parameters"]["calls"]
    # of the two concurrent trials, one or both have ended at this request
    assert [call[1] for call in told if call[1] == "EARLY_STOPPED"] in (["EARLY_STOPPED"], ["EARLY_STOPPED"] * 2)


def test_advisor_of_the_first_format_runs(home: Home) -> None:
    (home.line.folder / "space.json").write_text("{}")
    advisor = {"codeDir": ".", "classFileName": "advisor.py", "className": "Racing", "classArgs": {"most": 1}}
    config = {
        "authorName": "a",
        "experimentName": "e",
        "trialConcurrency": 2,
        "maxTrialNum": 2,
        "trainingServicePlatform": "local",
        "searchSpacePath": "space.json",
        "advisor": advisor,
        "trial": {"command": """echo '{"type": "final", "value": 1}' >> "$NNI_OUTBOX\"""", "codeDir": "."},
    }
    file = home.line.folder / "first.yml"
    file.write_text(json.dumps(config))
    id_ = id_in(home.line.good("create", "--config", str(file)))
    assert home.line.daemon.wait(id_, "DONE", timeout_s=40)["counts"] == {"SUCCEEDED": 2}


def test_nni_class_name_names_the_package_to_install(home: Home) -> None:
    file = home.line.config(tuner={"name": "PBTTuner", "classArgs": {"optimize_mode": "maximize"}})
    for command in (("create", "--config"), ("config", "check")):
        code, complaint = home.line.bad(*command, file)
        assert code == 2 and "tuner.name: PBT is NNI's own class: " in complaint
        assert f"{home.first / 'bin/python3'} -m pip install 'nni'" in complaint


def test_missing_python_is_named(home: Home) -> None:
    file = home.line.config(tuner=MINE, tunerPython="venvs/none/bin/python")
    for command in (("create", "--config"), ("config", "check")):
        _, complaint = home.line.bad(*command, file)
        assert complaint.startswith(
            f"{file}: tunerPython: cannot find program {home.line.folder}/venvs/none/bin/python;"
        )
        _, complaint = home.line.bad(*command, file, "--tuner-python", "python-not-there")
        assert "tunerPython: cannot find program python-not-there on the PATH" in complaint


def test_managers_python_is_used_without_a_caller(server: CommandLine, tmp_path: Path) -> None:
    """A config without an environment, as sent from another machine."""
    (tmp_path / "only_in_this_python.py").write_text("NUMBER = 1\n")
    (tmp_path / "mine.py").write_text(TUNER)
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "trialCodeDirectory": str(tmp_path),
        "maxTrialNumber": 1,
        "trainingService": {"platform": "local"},
        "tuner": {**MINE, "codeDirectory": str(tmp_path)},
    }
    id_ = server.daemon.call("POST", "/experiments", json=config)["id"]
    server.daemon.wait(id_, "DONE")
    (trial,) = server.daemon.trials(id_)
    assert trial["parameters"]["prefix"] == sys.prefix
