"""A program that launches an experiment as for NNI, where NNI is not installed and nni-manager is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nni_manager.platform_kit.payload import STAND_IN
from tests.programs import launching

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


def run(program: str, folder: Path, *words: str, python: tuple[str, ...] = (sys.executable,)) -> str:
    own = str(Path(sys.executable).parent)
    environment = launching.environment(folder / "home", PYTHONPATH=STAND_IN)
    environment["PATH"] = f"{own}:{environment['PATH']}"
    command = [*python, "-c", program, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "trial.py").write_text(launching.TRIAL)
    return tmp_path


def test_a_program_for_nni_launches_its_experiment(folder: Path) -> None:
    launching.judge(launching.found(run(launching.PROGRAM, folder, str(launching.free_port()))))


def test_configs_are_written_as_experiment_files_spell_them(folder: Path) -> None:
    code = """if True:
        from nni.experiment import *
        config = ExperimentConfig(
            search_space={"a_b": {"_type": "choice", "_value": [1]}}, trialConcurrency=2,
            tuner=CustomAlgorithmConfig(class_name="m.T", class_args={"optimize_mode": "maximize"}),
            training_service=RemoteConfig(machine_list=[RemoteMachineConfig(host="h", ssh_key_file="k")]),
        )
        assert config.json() == {
            "searchSpace": {"a_b": {"_type": "choice", "_value": [1]}}, "trialConcurrency": 2,
            "tuner": {"className": "m.T", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "remote", "machineList": [{"host": "h", "sshKeyFile": "k"}]},
        }, config.json()
        assert ExperimentConfig("remote").json() == {"trainingService": {"platform": "remote", "machineList": []}}
        try:
            ExperimentConfig(trial_comand="x")
        except AttributeError as error:
            print(error)
    """
    assert run(code, folder) == "ExperimentConfig does not have field(s) trial_comand\n"


def test_without_nni_manager_it_says_what_to_install(folder: Path) -> None:
    code = """if True:
        from nni.experiment import Experiment
        try:
            Experiment("local").start()
        except ImportError as error:
            print(error)
    """
    told = run(code, folder, python=(sys.executable, "-S"))
    assert "pip install nni-manager" in told and "or install nni" in told
