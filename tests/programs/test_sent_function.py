"""Functions that are sent: by reference, by cloudpickle, or not at all."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

import trial_runner
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.programs import plain_function, sent_function
from nni_manager.programs.experiment import Experiment
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in a folder of its own, importable."""
    folder = tmp_path / "theirs"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "inner.py").write_text("def call(parameters):\n    return parameters['x'] * 2\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    module = importlib.import_module("pack.inner")
    yield module
    for name in ("pack.inner", "pack"):
        del sys.modules[name]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (folder := tmp_path / "empty").mkdir()
    return folder


OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
STAND_IN = Path(trial_runner.__file__).parent / "stand_in"


def called(
    sent: sent_function.SentFunction,
    parameters: object,
    tmp_path: Path,
    *,
    program: Sequence[str] = ("-m", "nni_call"),
    is_here: bool = False,
    **variables: str,
) -> list[dict[str, object]]:
    """What a trial's process reports that calls the function."""
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "outbox").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(STAND_IN),
        **variables,
        "NNI_PLATFORM": "local",
        "NNI_OUTBOX": str(tmp_path / "outbox" / "lines.jsonl"),
    }
    environment |= {"NNI_SYS_DIR": str(tmp_path / "run"), "NNI_TRIAL_JOB_ID": "abcde"}
    record = json.dumps({"parameter_id": 0, "parameter_source": "algorithm", "parameters": parameters})
    (tmp_path / "run" / "parameter.cfg").write_text(record)
    words = [sent.what, *([sent.program] if is_here and sent.program else [])]
    subprocess.run([sys.executable, *program, *words], env=environment, cwd=sent.folder, check=True, timeout=20)
    return [json.loads(line) for line in _only(tmp_path / "outbox").read_text().splitlines()]


def _only(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_a_modules_function_is_sent_by_reference_with_its_folder(
    helper: ModuleType, empty: Path, tmp_path: Path
) -> None:
    sent = sent_function.prepare(helper.call, empty, None)
    assert sent.what == "pack.inner:call" and sent.folder == tmp_path / "theirs"
    assert called(sent, {"x": 4}, tmp_path)[-1]["value"] == 8


@pytest.mark.parametrize("safe_path", ["", "1"])
@pytest.mark.parametrize("program", [("-m", "nni_call"), (str(STAND_IN / "nni_call.py"),)])
@pytest.mark.parametrize("has_other", [False, True], ids=["stand-in alone", "another folder before it"])
def test_code_comes_first_and_nothing_of_the_path_is_lost(
    helper: ModuleType, empty: Path, tmp_path: Path, safe_path: str, program: tuple[str, ...], has_other: bool
) -> None:
    path = f"{tmp_path / 'theirs-too'}:{STAND_IN}" if has_other else str(STAND_IN)
    sent = sent_function.prepare(helper.call, empty, None)
    found = called(sent, {"x": 4}, tmp_path, program=program, PYTHONPATH=path, PYTHONSAFEPATH=safe_path)
    assert found[-1]["value"] == 8


def asked_for(monkeypatch: pytest.MonkeyPatch, function: Callable[[Any], Any], **fields: Any) -> dict[str, Any]:
    """The experiment file that `optimize` makes."""
    asked: list[dict[str, Any]] = []

    class Asked(Experiment):
        def start(self, **_: Any) -> Self:
            asked.append(json.loads(self._source.text))
            raise NotFound("no manager is needed")

    optimize = importlib.import_module("nni_manager.programs.optimize")
    monkeypatch.setattr(optimize, "Experiment", Asked)
    with pytest.raises(NotFound):
        optimize.optimize(function, {}, trials=1, **fields)
    return asked[0]


@pytest.mark.parametrize(("manager", "is_here"), [(None, True), ("http://gpu-box:8080", False)])
def test_remote_manager_gets_no_local_paths(
    monkeypatch: pytest.MonkeyPatch, manager: str | None, is_here: bool
) -> None:
    """``local`` is the manager's machine then, whose Python must be asked for."""
    asked = asked_for(monkeypatch, math.hypot, manager=manager)
    assert (sys.executable in asked["trialCommand"]) is is_here
    assert asked["trialCommand"].startswith("python3 -m nni_call ") is not is_here
    needs = {} if is_here else {"trialPythonVersion": OWN_VERSION}
    assert asked["trainingService"] == {"platform": "local", **needs}


def test_each_service_has_command_and_python_version(monkeypatch: pytest.MonkeyPatch) -> None:
    services = [{"platform": "local"}, {"platform": "remote", "machine_list": []}, {"platform": "dlts", "name": "dlts"}]
    asked = asked_for(monkeypatch, lambda parameters: 1, platform=services)
    local, remote, dlts = asked["trainingService"]
    assert sys.executable in asked["trialCommand"] and local == {"platform": "local"}
    assert (
        remote.pop("trialCommand") == dlts.pop("trialCommand") == f"python3 -m nni_call function.marshal:{OWN_VERSION}"
    )
    assert remote == {"platform": "remote", "machineList": [], "trialPythonVersion": OWN_VERSION}
    assert dlts == {"platform": "dlts", "name": "dlts", "trialPythonVersion": OWN_VERSION}


def test_a_function_by_reference_needs_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_for(monkeypatch, json.dumps, platform=[{"platform": "remote", "machine_list": []}])
    assert asked["trainingService"] == {"platform": "remote", "machineList": []}
    assert asked["trialCommand"] == "python3 -m nni_call json:dumps"


def test_an_installed_function_needs_no_folder(empty: Path) -> None:
    assert sent_function.prepare(math.hypot, empty, None).what.startswith("function.pickle:")
    assert sent_function.prepare(json.dumps, empty, None) == sent_function.SentFunction(what="json:dumps", folder=empty)


class Factor:
    """What cloudpickle alone can send, as this module is not there."""

    value = 3


def test_a_closure_is_sent_by_cloudpickle_which_travels_with_it(empty: Path, tmp_path: Path) -> None:
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    factor = Factor()

    def steps(parameters: dict[str, float]) -> object:
        for step in range(2):
            yield {"default": parameters["x"] * factor.value * step}

    sent = sent_function.prepare(steps, empty, None)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert sent.what == f"function.pickle:{sys.version_info[0]}.{sys.version_info[1]}"
    assert (empty / "cloudpickle" / "__init__.py").exists()
    values = [one["value"] for one in called(sent, {"x": 2}, tmp_path)]
    assert values == [{"default": 0}, {"default": 6}, {"default": 6}]


def _halved(value: float, *, by: float = 2) -> float:
    return value / by


COUNT = 4
TABLE = {"a": [1, 2], "b": (3.5, None)}


def test_plain_functions_are_sent_without_package(empty: Path, tmp_path: Path) -> None:
    """Recursion, functions that call each other, defaults, shared cells, globals, modules and their submodules."""
    here = dict(globals())
    source = """
import math, xml.dom.minidom
from math import sqrt
from pathlib import Path
total = 0
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
def make(start):
    def up(by=1):
        nonlocal start
        start += by
        return start
    def trial(parameters, table={"w": [2]}):
        global total
        total += up() + up(by=2)
        document = xml.dom.minidom.parseString("<a><b/></a>")
        return {
            "default": total + table["w"][0], "even": even(10), "root": sqrt(parameters["x"]) + math.floor(1.5),
            "path": Path("a/b").name, "tags": len(document.getElementsByTagName("b")), "halved": halved(COUNT),
            "table": [TABLE["a"], list(TABLE["b"])], "inner": [y for y in map(lambda z: z * parameters["x"], (1, 2))],
        }
    return trial
"""
    here.update(halved=_halved, __name__="__main__")
    exec(source, here)
    sent = sent_function.prepare(here["make"](10), empty, None)
    assert sent.what.startswith("function.marshal:") and not (empty / "cloudpickle").exists()
    assert called(sent, {"x": 9}, tmp_path)[-1]["value"] == {
        **{"default": 11 + 13 + 2, "even": True, "root": 4.0, "path": "b", "tags": 1, "halved": 2.0},
        **{"table": [[1, 2], [3.5, None]], "inner": [9, 18]},
    }


def test_what_is_not_plain_is_left_to_cloudpickle(empty: Path) -> None:
    """Whatever would not be the same on the other side: an object, a list under two names, an empty cell."""
    shared: list[int] = []
    pair = (shared, shared)
    factor = Factor()
    for function in (lambda p: factor.value, lambda p: (shared, pair), functools.partial(_halved, 3), print):
        assert plain_function.dumps(function, lambda name: name != __name__) is None

    def later(parameters: object) -> int:
        return number

    assert plain_function.dumps(later, lambda name: True) is None
    number = 1
    assert plain_function.dumps(later, lambda name: True) is not None


def test_other_python_refuses_before_reading_function(empty: Path) -> None:
    sent = sent_function.prepare(lambda parameters: 1, empty, None)
    assert sent.what.startswith("function.marshal:")
    import trial_runner

    stand_in = Path(trial_runner.__file__).parent / "stand_in"
    (empty / "function.marshal").write_bytes(b"of another format")
    done = subprocess.run(
        [sys.executable, "-m", "nni_call", "function.marshal:3.1"],
        env={**os.environ, "PYTHONPATH": str(stand_in)},
        cwd=sent.folder,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1 and done.stderr.startswith(f"{protocol.OTHER_PYTHON_MARK}3.1, and this is Python")
    assert "Traceback" not in done.stderr


def test_what_cannot_be_pickled_is_refused_with_its_reason(empty: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match=r"function: cannot be sent .*lock"):
        sent_function.prepare(lambda parameters: lock.acquire(), empty, None)


def test_unsent_module_is_named_with_its_folder(helper: ModuleType, empty: Path, tmp_path: Path) -> None:
    def uses(parameters: object) -> object:
        return helper.call(parameters)

    with pytest.raises(InvalidInput, match=f"uses module pack, .*code_directory='{tmp_path / 'theirs'}'"):
        sent_function.prepare(uses, empty, None)
    sent = sent_function.prepare(uses, empty, tmp_path / "theirs")
    assert called(sent, {"x": 1}, tmp_path)[-1]["value"] == 2


def test_without_cloudpickle_the_sentence_says_what_to_install(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_function, "find_spec", lambda name: None)
    factor = Factor()
    with pytest.raises(InvalidInput, match=r"pip install nni-manager\[programs\]"):
        sent_function.prepare(lambda parameters: factor.value, empty, None)


def test_text_like_a_module_is_not_a_module() -> None:
    import cloudpickle

    content = cloudpickle.dumps(lambda parameters: ("numpy", json.dumps(parameters)))
    found = set(sent_function.imported_modules(content))
    assert "json" in {name.partition(".")[0] for name in found} and "numpy" not in found


def with_folder(tmp_path: Path) -> Path:
    """A code directory with an ignored file, a link in it and one that leads out of it."""
    (folder := tmp_path / "given").mkdir()
    (folder / "helper.py").write_text("def scale(value):\n    return value * 10\n")
    (folder / ".nniignore").write_text("big/\n")
    (folder / "big").mkdir()
    (folder / "big" / "data.bin").write_bytes(b"0" * 1000)
    (folder / "link.py").symlink_to("helper.py")
    return folder


def scaled(parameters: Any) -> Any:
    import os

    import helper

    return {"default": helper.scale(parameters["x"]), "big": os.path.exists("big"), "cwd": os.getcwd()}


scaled.__module__ = "__main__"  # as if the program defined it


def test_code_directory_copy_follows_archive_rules(empty: Path, tmp_path: Path) -> None:
    folder = with_folder(tmp_path)
    sent = sent_function.prepare(scaled, empty, folder)
    assert os.readlink(empty / "link.py") == "helper.py" and not (empty / "big").exists()
    assert called(sent, {"x": 4}, tmp_path)[-1]["value"] == {"default": 40, "big": False, "cwd": str(empty)}


def test_code_directory_on_this_machine_is_run_in_and_not_copied(empty: Path, tmp_path: Path) -> None:
    folder = with_folder(tmp_path)
    (folder / "out").symlink_to("/")
    sent = sent_function.prepare(scaled, empty, folder, is_sent_away=False)
    assert not (empty / "helper.py").exists()
    found = called(sent, {"x": 4}, tmp_path, is_here=True)
    assert found[-1]["value"] == {"default": 40, "big": True, "cwd": str(folder)}


def _dangling(folder: Path) -> None:
    (folder / "gone").symlink_to("nothing")


def _leading_out(folder: Path) -> None:
    (folder / "out").symlink_to("/etc")


def _socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / "socket"))


def _far_too_many(folder: Path) -> None:
    for number in range(2001):
        (folder / f"{number}.py").touch()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_dangling, "'gone' in .* is a link to 'nothing', which cannot be followed"),
        (_leading_out, "'out' in .* is a link that leads out of it"),
        (_socket, "'socket' in .* is a socket"),
        (_far_too_many, "has 200. files, .* at most 2000 files"),
    ],
)
def test_code_directory_that_cannot_travel_is_refused_by_name(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None], words: str
) -> None:
    folder = with_folder(tmp_path)
    monkeypatch.chdir(folder)
    spoil(folder)
    with pytest.raises(InvalidInput, match=f"^code_directory: .*{words}"):
        sent_function.prepare(scaled, empty, folder)


class Model:
    def __init__(self, parameters: Any) -> None: ...


async def awaited(parameters: Any) -> int:
    return 1


async def yielded(parameters: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Model, "Model is a class"),
        (awaited, "awaited is asynchronous"),
        (yielded, "yielded is asynchronous"),
        (functools.partial(awaited), "is asynchronous"),
        (lambda a, b: 1, "must take one argument, the parameters .*missing a required argument: 'b'"),
        (lambda: 1, "must take one argument, the parameters .*too many positional arguments"),
        (lambda a, *, b: 1, "must take one argument"),
        (5, "5 cannot be called"),
    ],
)
def test_what_cannot_be_called_with_parameters_is_refused(empty: Path, function: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"^function: .*{words}"):
        sent_function.prepare(function, empty, None)


@pytest.mark.parametrize(
    "function", [lambda a: 1, lambda a, b=2: 1, lambda *a: 1, functools.partial(lambda b, a: 1, 2)], ids=str
)
def test_functions_of_one_argument_are_taken(empty: Path, function: Any) -> None:
    assert sent_function.prepare(function, empty, None).program == "program.json"


def missing_module(parameters: Any) -> Any:
    import not_there_at_all  # noqa: F401


def missing_file(parameters: Any) -> Any:
    return open("datasets/a.csv").read()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            missing_module,
            "No module named 'not_there_at_all'; call optimize with code_directory, a folder that holds not_",
        ),
        (missing_file, "No such file or directory; call optimize with code_directory, a folder that holds this file"),
    ],
)
def test_missing_code_elsewhere_leads_to_code_directory(
    empty: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], function: Any, words: str
) -> None:
    sent = sent_function.prepare(function, empty, None)
    with pytest.raises(subprocess.CalledProcessError):
        called(sent, {}, tmp_path)
    assert words in capfd.readouterr().err.splitlines()[-1]


def test_optimize_inside_its_own_trial_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNI_CALL_TRIAL", "1")
    optimize = importlib.import_module("nni_manager.programs.optimize")
    with pytest.raises(InvalidInput, match="inside a trial of optimize: put the call below `if __name__"):
        optimize.optimize(lambda parameters: 1, {}, trials=1)


def test_optimize_without_a_tuner_uses_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_for(monkeypatch, json.dumps, direction="maximize")
    assert asked["tuner"] == {"name": "Auto", "classArgs": {"optimize_mode": "maximize"}}
