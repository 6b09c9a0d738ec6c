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
        assert config._sent() == {
            "searchSpace": {"a_b": {"_type": "choice", "_value": [1]}}, "trialConcurrency": 2,
            "tuner": {"className": "m.T", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "remote", "machineList": [{"host": "h", "sshKeyFile": "k"}]},
        }, config._sent()
        assert ExperimentConfig("remote")._sent() == {"trainingService": {"platform": "remote", "machineList": []}}
        try:
            ExperimentConfig(trial_comand="x")
        except AttributeError as error:
            print(error)
    """
    assert run(code, folder) == "ExperimentConfig does not have field(s) trial_comand\n"


def test_mappings_become_objects_and_defaults_stay_unsent(folder: Path) -> None:
    code = """if True:
        from nni.experiment import *
        machine = {"host": "h", "hostKey": "ssh-rsa x"}
        config = ExperimentConfig(
            tuner={"name": "TPE"}, training_service={"platform": "remote", "machineList": [machine]},
            shared_storage={"storageType": "NFS", "nfs_server": "s"}, maxSameFailures=3,
        )
        assert (config.tuner.name, config.training_service.machine_list[0].port) == ("TPE", 22)
        assert (config.debug, config.trial_code_directory) == (False, ".")
        assert config.experiment_working_directory == "~/nni-experiments"
        assert config.shared_storage.nfs_server == "s"
        config.max_failed_trials = 5
        assert config._sent() == {
            "tuner": {"name": "TPE"}, "trainingService": {"platform": "remote", "machineList": [machine]},
            "sharedStorage": {"storageType": "NFS", "nfsServer": "s"}, "maxSameFailures": 3, "maxFailedTrials": 5,
        }, config._sent()
        config.debug = False
        assert config._sent()["debug"] is False
    """
    run(code, folder)


def test_canonical_config_has_defaults_and_starts_the_same(folder: Path) -> None:
    (folder / "space.yml").write_text("x: {_type: uniform, _value: [0, 1e-3]}\n")
    code = """if True:
        import os
        from nni.experiment.config import ExperimentConfig
        config = ExperimentConfig("local")
        config.search_space_file = "space.yml"
        config.trial_command = "python3 trial.py"
        config.trial_concurrency = 2
        config.tuner.name = "Random"
        config.training_service.gpu_indices = "0,1"
        config.max_same_failures = 3
        found = config.json()
        assert found["searchSpace"] == {"x": {"_type": "uniform", "_value": [0, 0.001]}}
        assert found["searchSpaceFile"] == os.path.realpath("space.yml") and found["logLevel"] == "info"
        assert found["trainingService"]["trialCommand"] == "python3 trial.py"
        assert found["trainingService"]["gpuIndices"] == [0, 1] and found["maxSameFailures"] == 3
        assert config.search_space is None and config.training_service.gpu_indices == "0,1"
        copy = config.canonical_copy()
        assert copy != config and copy.json() == found
        again = ExperimentConfig(**found)
        assert again.json() == found
        del found["trainingService"]["gpuIndices"], found["trainingService"]["maxTrialNumberPerGpu"]
        ExperimentConfig(**found).validate()
    """
    run(code, folder)


@pytest.mark.parametrize(
    ("field", "error"),
    [("trial_concurrency", "ExperimentConfig: trial_concurrency"), ("trial_command", "LocalConfig: trial_command")],
)
def test_canonical_config_names_a_field_that_is_missing(folder: Path, field: str, error: str) -> None:
    code = f"""if True:
        from nni.experiment.config import *
        given = {{"trial_concurrency": 1, "trial_command": "true", "search_space": {{}}, "tuner": {{"name": "Random"}}}}
        del given["{field}"]
        try:
            ExperimentConfig(training_service=LocalConfig(), **given).json()
        except ValueError as error:
            print(error)
    """
    assert run(code, folder).strip() == f"{error} is not set"


def test_config_is_loaded_and_validated(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "trial.py").write_text(launching.TRIAL)
    (folder / "below" / "exp.yml").write_text(
        "searchSpace: {x: {_type: uniform, _value: [0, 1e-3]}}\ntrialCommand: python3 trial.py\n"
        "trialConcurrency: 1\ntuner: {name: Random}\ntrainingService: {platform: local}\n"
    )
    code = """if True:
        from nni.experiment import *
        config = ExperimentConfig.load("below/exp.yml")
        assert (config.tuner.name, config.search_space["x"]["_value"]) == ("Random", [0, 1e-3])
        assert config.validate() is None
        config.trial_concurrency = 0
        try:
            config.validate()
        except ValueError as error:
            print(error)
    """
    assert "trialConcurrency: " in run(code, folder)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ExperimentConfig('local').trial_comand = 'x'", "AttributeError: ExperimentConfig does not have field"),
        ("LocalConfig().use_activ_gpu = True", "AttributeError: LocalConfig does not have field use_activ_gpu"),
        ("ExperimentConfig('nowhere')", "ValueError: Bad training service platform: nowhere"),
        ("Experiment(None, id='no id')", "ValueError: Invalid experiment ID: no id"),
        ("Experiment.resume('no id')", "ValueError: Invalid experiment ID: no id"),
        ("Experiment.resume(experiment_id='no id', port=8080)", "ValueError: Invalid experiment ID: no id"),
        ("Experiment.view('no id', 8080)", "ValueError: Invalid experiment ID: no id"),
        ("Experiment.view(experiment_id='no id', non_blocking=True)", "ValueError: Invalid experiment ID: no id"),
        ("Experiment.view()", "TypeError: "),
        ("Experiment(training_service='nowhere')", "ValueError: Bad training service platform: nowhere"),
    ],
)
def test_mistakes_are_reported_with_line(folder: Path, line: str, error: str) -> None:
    code = f"""if True:
        from nni.experiment import *
        try:
            {line}
        except Exception as error:
            print(f"{{type(error).__name__}}: {{error}}")
    """
    assert run(code, folder).startswith(error)


def test_experiment_is_resumed_and_viewed_by_its_id(folder: Path) -> None:
    code = """if True:
        import sys
        from nni.experiment import Experiment
        port = int(sys.argv[1])
        experiment = Experiment("local", id="one")
        experiment.config.trial_command = "python3 trial.py"
        experiment.config.search_space = {}
        experiment.config.tuner.name = "Random"
        experiment.config.max_trial_number = 1
        experiment.config.trial_concurrency = 1
        assert experiment.run(port) is True
        experiment.stop()
        assert Experiment.resume("one", port) is True
        resumed = Experiment.resume(experiment_id="one", port=port, wait_completion=False)
        assert resumed.id == "one" and len(resumed.list_trial_jobs()) == 1
        assert resumed.config.max_trial_number == 1 and resumed.config.tuner.name == "Random"
        resumed.stop()
        viewed = Experiment.view(experiment_id="one", port=port, non_blocking=True)
        assert viewed.get_status() == "VIEWED"
        viewed.stop()
        own = Experiment(None, id="one")
        assert own.resume(port, wait_completion=False) is None
        own.stop()
        assert Experiment.view(own, port=port, non_blocking=True) is own
        own.stop()
    """
    run(code, folder, str(launching.free_port()))


def test_run_ends_on_hold_for_user(folder: Path) -> None:
    (folder / "broken.py").write_text("""if True:
        from nni.tuner import Tuner
        class Broken(Tuner):
            def update_search_space(self, search_space):
                pass
            def generate_parameters(self, *_, **__):
                raise ValueError("boom")
    """)
    code = """if True:
        import sys
        from nni.experiment import Experiment
        from nni.experiment.config import CustomAlgorithmConfig
        experiment = Experiment("local")
        experiment.config.trial_command = "python3 trial.py"
        experiment.config.search_space = {}
        experiment.config.tuner = CustomAlgorithmConfig(code_directory=".", class_name="broken.Broken")
        experiment.config.max_trial_number = 1
        experiment.config.trial_concurrency = 1
        print("ended with", experiment.run(int(sys.argv[1])))
    """
    told = run(code, folder, str(launching.free_port()))
    assert "is on hold" in told and "ValueError: boom" in told and "ended with False" in told


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
