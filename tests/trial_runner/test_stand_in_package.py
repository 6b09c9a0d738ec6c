"""`import nni` where nni is not installed, each time in a Python of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trial_runner import protocol

pytestmark = pytest.mark.acceptance

STAND_IN = Path(__file__).parents[2] / "trial_runner" / "stand_in"
REAL = "__version__ = '9.9'\n"


class Trial:
    """Runs code with the environment and the folder of a trial."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python_path = [str(STAND_IN)]
        self.environment = {
            protocol.ENV_PLATFORM: "local",
            protocol.ENV_EXPERIMENT_ID: "exp1",
            protocol.ENV_TRIAL_ID: "abcde",
            protocol.ENV_SEQUENCE_ID: "3",
            protocol.ENV_SYSTEM_DIR: str(folder),
            protocol.ENV_OUTBOX: str(folder / protocol.MAIN_OUTBOX),
        }
        record = {"parameter_id": 3, "parameter_source": "algorithm", "parameters": {"lr": 0.1}, "parameter_index": 0}
        (folder / protocol.PARAMETER_FILE).write_text(json.dumps(record))

    def run(self, code: str, *options: str) -> subprocess.CompletedProcess[str]:
        # -S: the environment of these tests starts with modules of its own
        command = [sys.executable, "-S", *options, "-c", code]
        path = {"PYTHONPATH": os.pathsep.join(self.python_path)}
        return subprocess.run(
            command, env={**self.environment, **path}, capture_output=True, text=True, cwd=self.folder
        )

    def prints(self, code: str) -> str:
        done = self.run(code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def fails(self, code: str) -> str:
        done = self.run(code)
        assert done.returncode == 1, done.stdout
        return done.stderr.strip().splitlines()[-1]

    def outboxes(self) -> list[list[dict[str, object]]]:
        files = (self.folder / protocol.OUTBOX_FOLDER).glob("*.jsonl")
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def make_package(folder: Path, source: str = REAL) -> str:
    """A package called nni in `folder`; the answer belongs on the import path."""
    (folder / "nni").mkdir(parents=True)
    (folder / "nni" / "__init__.py").write_text(source)
    (folder / "nni" / "experiment.py").write_text("where = 'real'\n")
    return str(folder)


def test_a_trial_gets_its_parameters_and_reports(trial: Trial) -> None:
    code = """if True:
        import nni
        assert nni.get_current_parameter() is None
        parameters = nni.get_next_parameter()
        assert parameters == {"lr": 0.1} and nni.get_next_parameter() is parameters
        assert nni.get_current_parameter() is parameters and nni.get_current_parameter("lr") == 0.1
        nni.report_intermediate_result(float("nan"))
        nni.report_final_result({"default": 0.5})
        print(nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id())
    """
    assert trial.prints(code) == "exp1 abcde 3"
    ((first, last),) = trial.outboxes()
    assert first["type"] == "intermediate" and first["value"] != first["value"]
    assert last == {"type": "final", "value": {"default": 0.5}}


def test_program_without_environment_keeps_results_and_ids(trial: Trial) -> None:
    code = """if True:
        import nni, os
        os.environ.clear()
        nni.report_final_result(1)
        print(nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id())
    """
    assert trial.prints(code) == "exp1 abcde 3"
    assert trial.outboxes() == [[{"type": "final", "value": 1}]]


def test_results_need_neither_parameters_nor_a_manager(trial: Trial) -> None:
    (trial.folder / protocol.PARAMETER_FILE).unlink()
    trial.prints("import nni; nni.report_final_result(1)")
    assert trial.outboxes() == [[{"type": "final", "value": 1}]]


def test_missing_parameters_are_an_error_that_names_the_file(trial: Trial) -> None:
    (trial.folder / protocol.PARAMETER_FILE).unlink()
    sentence = trial.fails("import nni; nni.get_next_parameter()")
    assert sentence.startswith("RuntimeError") and str(trial.folder / protocol.PARAMETER_FILE) in sentence


def test_a_forked_child_has_an_outbox_of_its_own(trial: Trial) -> None:
    code = """if True:
        import nni, os
        nni.report_intermediate_result("parent")
        child = os.fork()
        nni.report_final_result("parent" if child else "child")
        if child: os.waitpid(child, 0)
    """
    trial.prints(code)
    assert sorted([line["value"] for line in lines] for lines in trial.outboxes()) == [["child"], ["parent", "parent"]]


def test_a_child_forked_while_another_thread_reports_can_report(trial: Trial) -> None:
    code = """if True:
        import nni, nni_outbox, os, signal, threading
        inside, leave = threading.Event(), threading.Event()
        class SlowDisk:
            def __getattr__(self, name): return getattr(os, name)
            def write(self, file, data):
                inside.set(); leave.wait()
                return os.write(file, data)
        nni_outbox.os = SlowDisk()
        thread = threading.Thread(target=nni.report_intermediate_result, args=("parent",))
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            leave.set()
            signal.alarm(20)
            nni.report_final_result("child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        leave.set()
        thread.join()
    """
    done = trial.run(code)
    assert done.returncode == 0, done.stderr
    assert sorted(lines[0]["value"] for lines in trial.outboxes()) == ["child", "parent"]  # type: ignore[type-var]


@pytest.mark.parametrize("platform", [None, "unittest"])
def test_outside_an_experiment_it_warns_and_prints(trial: Trial, platform: str | None) -> None:
    trial.environment = {protocol.ENV_PLATFORM: platform} if platform else {}
    code = """if True:
        import nni
        assert nni.get_next_parameter() == {}
        nni.report_intermediate_result(0.25); nni.report_intermediate_result({"default": 0.5})
        nni.report_final_result(0.75)
        print(nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id())
    """
    done = trial.run(code)
    assert done.stdout.splitlines() == [
        "Intermediate result 0: 0.25",
        'Intermediate result 1: {"default": 0.5}',
        "Final result: 0.75",
        "STANDALONE STANDALONE 0",
    ]
    assert "<string>:3: RuntimeWarning: No experiment runs this program" in done.stderr
    assert trial.outboxes() == []


def test_wrong_value_is_refused_outside_experiment(trial: Trial) -> None:
    trial.environment = {}
    assert "a value of type object is not JSON" in trial.fails("import nni; nni.report_final_result(object())")


def test_version_is_managers_and_names_stand_in(trial: Trial) -> None:
    assert trial.prints("import nni; print(nni.__version__)") == protocol.VERSION + "+stand-in"


@pytest.mark.alone
def test_importing_it_takes_less_than_30_ms(trial: Trial) -> None:
    runs = [trial.run("import nni", "-X", "importtime").stderr.splitlines()[-1] for _ in range(3)]
    microseconds = [int(run.split("|")[1]) for run in runs if run.endswith("| nni")]
    assert len(microseconds) == 3 and min(microseconds) < 30_000


def test_import_is_light_and_prints_nothing(trial: Trial) -> None:
    code = """if True:
        import sys
        before, stdout = set(sys.modules), sys.stdout
        import nni
        nni.report_intermediate_result(0.5)
        assert sys.stdout is stdout
        print(*sorted(set(sys.modules) - before))
    """
    added = set(trial.prints(code).split())
    assert "nni_outbox" in added
    assert not added & {"typing", "logging", "json", "re", "enum", "collections", "functools", "threading", "inspect"}


def test_star_import_has_names_for_trial_code(trial: Trial) -> None:
    code = "from nni import *; print(get_next_parameter(), NoMoreTrialError, ClassArgsValidator)"
    shown = "{'lr': 0.1} <class 'nni.tuner.NoMoreTrialError'> <class 'nni.utils.ClassArgsValidator'>"
    assert trial.prints(code) == shown


def test_its_modules_are_there_without_an_import(trial: Trial) -> None:
    code = "import nni; print(nni.utils.OptimizeMode.Maximize, nni.tuner.Tuner, nni.assessor.AssessResult.Bad)"
    assert trial.prints(code) == "OptimizeMode.Maximize <class 'nni.tuner.Tuner'> AssessResult.Bad"


def test_silenced_stdout_has_no_results_outside_an_experiment(trial: Trial) -> None:
    trial.environment = {}
    report = "nni.report_intermediate_result(1); nni.report_final_result(2)"
    assert trial.prints(f"import nni; {report}") == "Intermediate result 0: 1\nFinal result: 2"
    assert trial.prints(f"import nni; nni.silence_stdout(); {report}") == ""


def test_global_logging_prints_logs_of_all_modules_until_it_ends(trial: Trial) -> None:
    code = """if True:
        import logging, nni
        log = logging.getLogger("other")
        log.info("before")
        for _ in range(2):
            nni.enable_global_logging()
        log.info("printed")
        nni.enable_global_logging(False)
        log.info("after")
        nni.enable_global_logging()
        nni.silence_stdout()
        nni.enable_global_logging()
        log.info("silenced")
    """
    (line,) = trial.prints(code).splitlines()
    assert line.endswith("INFO (other) printed")


def test_recovered_parameters_are_those_of_earlier_trials(trial: Trial) -> None:
    code = """if True:
        from nni.tuner import Tuner
        class Own(Tuner):
            def __init__(self): pass
        own, other = Own(), Own()
        earlier = ['{"parameter_id": 3, "parameters": 1}', {"parameter_id": 1, "parameters": 2}]
        assert own.recover_parameter_id(earlier) == 3
        print(own.is_created_in_previous_exp(3), own.is_created_in_previous_exp(4), own.get_previous_param(1))
        print(other.is_created_in_previous_exp(0), other.recovered_trial_params)
    """
    assert trial.prints(code) == "True False 2\nFalse {}"


def test_modules_for_types_and_helpers_are_found(trial: Trial) -> None:
    code = """if True:
        import nni
        from nni.common.hpo_utils import Deduplicator, format_search_space, validate_search_space
        from nni.common.serializer import dump, load
        from nni.runtime.env_vars import trial_env_vars
        from nni.typehint import Parameters, SearchSpace, TrialRecord
        from nni.version import __version__
        assert nni.common.hpo_utils.OptimizeMode is nni.utils.OptimizeMode
        assert TrialRecord(parameter={}, value=1) == {"parameter": {}, "value": 1}
        print(load(dump({"a": 1})), trial_env_vars.NNI_TRIAL_JOB_ID, __version__ == nni.__version__)
    """
    assert trial.prints(code) == "{'a': 1} abcde True"


@pytest.mark.parametrize(
    ("code", "error", "name"),
    [
        ("import nni; nni.trace", "AttributeError", "nni.trace"),
        ("from nni import trace", "ModuleNotFoundError", "nni.trace"),
        ("import nni.nas", "ModuleNotFoundError", "nni.nas"),
        ("from nni.nas import Space", "ModuleNotFoundError", "nni.nas"),
        ("from nni.utils import no_such_helper", "ImportError", "nni.utils.no_such_helper"),
        ("from nni.common.serializer import trace", "ImportError", "nni.common.serializer.trace"),
    ],
)
def test_missing_names_are_refused_in_a_sentence(trial: Trial, code: str, error: str, name: str) -> None:
    sentence = f"{error}: {name} is not part of the stand-in that replaces nni here; install nni"
    assert trial.fails(code).startswith(sentence)


def test_hasattr_of_missing_names_is_false(trial: Trial) -> None:
    assert trial.prints("import nni; print(hasattr(nni, 'trace'), hasattr(nni.utils, '__wrapped__'))") == "False False"


def test_a_real_nni_further_along_takes_over(trial: Trial) -> None:
    trial.python_path.append(make_package(trial.folder / "site"))
    code = (
        "import nni, nni.experiment; print(nni.__version__, nni.experiment.where, hasattr(nni, 'get_next_parameter'))"
    )
    assert trial.prints(code) == "9.9 real False"
    assert trial.prints("from nni.experiment import where; print(where)") == "real"


def test_real_nni_first_on_path_is_used(trial: Trial) -> None:
    trial.python_path.insert(0, make_package(trial.folder / "site"))
    assert trial.prints("import nni; print(nni.__version__)") == "9.9"


def test_an_editable_real_nni_takes_over(trial: Trial) -> None:
    site = make_package(trial.folder / "site")
    code = f"""if True:
        import sys
        from importlib.util import spec_from_file_location
        class Editable:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "nni":
                    return spec_from_file_location(name, "{site}/nni/__init__.py")
        sys.meta_path.append(Editable)
        import nni, nni.experiment
        print(nni.__version__, nni.experiment.where)
    """
    assert trial.prints(code) == "9.9 real"


def test_a_folder_that_is_called_nni_does_not(trial: Trial) -> None:
    (trial.folder / "site" / "nni").mkdir(parents=True)
    trial.python_path.append(str(trial.folder / "site"))
    assert trial.prints("import nni; print(nni.get_trial_id())") == "abcde"


def test_two_stand_ins_on_one_path_come_to_an_end(trial: Trial) -> None:
    shutil.copytree(STAND_IN, trial.folder / "other")
    trial.python_path += [str(trial.folder / "other"), str(STAND_IN)]
    assert trial.prints("import nni; print(nni.get_trial_id())") == "abcde"
    trial.python_path.append(make_package(trial.folder / "site"))
    assert trial.prints("import nni; print(nni.__version__)") == "9.9"


def test_a_broken_real_nni_shows_its_own_error(trial: Trial) -> None:
    trial.python_path.append(make_package(trial.folder / "site", "import json_tricks_that_is_not_there"))
    assert trial.fails("import nni") == "ModuleNotFoundError: No module named 'json_tricks_that_is_not_there'"
    code = "try: import nni\nexcept ImportError: import sys; print([name for name in sys.modules if name == 'nni'])"
    assert trial.prints(code) == "[]"


def test_stand_in_is_python_3_7_syntax() -> None:
    command = [str(Path(sys.executable).parent / "vermin"), "-t=3.7-", "--no-tips", str(STAND_IN)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "Minimum required versions: 3.7" in done.stdout, done.stdout
