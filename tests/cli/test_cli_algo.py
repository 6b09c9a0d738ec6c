"""nnictl algo: names for users' classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from fake_manager import FakeManager

pytestmark = [pytest.mark.acceptance]

Run = Callable[..., Result]
META = "algoType: tuner\nbuiltinName: Mine\nclassName: my_tuner.MyTuner\n"
TUNER = """
from nni import ClassArgsValidator
from nni.tuner import Tuner

class MyTuner(Tuner):
    def __init__(self, size=1):
        pass

class MyValidator(ClassArgsValidator):
    def validate_class_args(self, **kwargs):
        if kwargs.get("size", 1) < 1:
            raise ValueError("size is too small")
"""


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NNI_MANAGER_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("NNI_MANAGER_ADDRESS", raising=False)
    folder = tmp_path / "algorithm"
    folder.mkdir()
    (folder / "my_tuner.py").write_text(TUNER)
    (folder / "meta.yml").write_text(META)
    return folder / "meta.yml"


@pytest.mark.parametrize(("register", "unregister"), [("register", "unregister"), ("reg", "unreg")])
def test_name_is_registered_used_and_removed(nnictl: Run, meta: Path, register: str, unregister: str) -> None:
    result = nnictl("algo", register, "--meta_path", str(meta))
    assert (result.exit_code, result.output) == (0, "tuner Mine is registered: my_tuner.MyTuner\n")
    assert "is replaced" in nnictl("algo", register, "-m", str(meta)).stdout
    shown = json.loads(nnictl("algo", "show", "mine").stdout)
    assert shown == {
        "algoType": "tuner",
        "builtinName": "Mine",
        "className": "my_tuner.MyTuner",
        "codeDirectory": str(meta.parent),
        "acceptClassArgs": True,
        "source": "user",
    }
    config = meta.parent / "experiment.yml"
    config.write_text(
        "searchSpace: {}\ntrialCommand: 'true'\ntrialConcurrency: 1\ntuner: {name: mine}\n"
        "trainingService: {platform: local}\n"
    )
    assert "of my_tuner.MyTuner on local" in nnictl("config", "check", str(config)).stdout
    assert nnictl("algo", unregister, "Mine").stdout == "Mine is not registered any more.\n"
    assert nnictl("config", "check", str(config)).exit_code == 2


def test_list(nnictl: Run, meta: Path) -> None:
    nnictl("algo", "register", "-m", str(meta))
    lines = [line.split()[:3] for line in nnictl("algo", "list").stdout.splitlines()]
    assert lines[0] == ["NAME", "TYPE", "SOURCE"]
    assert ["TPE", "tuner", "built-in"] in lines and ["Medianstop", "assessor", "built-in"] in lines
    assert lines[-1] == ["Mine", "tuner", "user"]
    entries = json.loads(nnictl("algo", "list", "--json").stdout)
    assert entries[-1]["className"] == "my_tuner.MyTuner" and len(entries) == len(lines) - 1


def test_several_in_one_file(nnictl: Run, meta: Path) -> None:
    meta.write_text(
        "algorithms:\n- {algoType: advisor, builtinName: A, className: my_tuner.MyTuner, classArgs: {a: 1}}\n"
        "- {algoType: assessor, builtinName: B, className: my_tuner.MyTuner,"
        " classArgsValidator: my_tuner.MyValidator, acceptClassArgs: false}\n"
    )
    lines = nnictl("algo", "register", "-m", str(meta)).stdout.splitlines()
    assert lines == ["tuner A is registered: my_tuner.MyTuner", "assessor B is registered: my_tuner.MyTuner"]
    assert json.loads(nnictl("algo", "show", "B").stdout)["classArgsValidator"] == "my_tuner.MyValidator"


def test_an_installed_module(nnictl: Run, meta: Path) -> None:
    meta.write_text(META.replace("my_tuner.MyTuner", "json.decoder.JSONDecoder"))
    assert nnictl("algo", "register", "-m", str(meta)).exit_code == 0
    assert "codeDirectory" not in json.loads(nnictl("algo", "show", "Mine").stdout)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("algoType: tuner\n", "builtinName: is required"),
        (META.replace("tuner", "sampler", 1), "algoType: must be one of tuner, advisor, assessor"),
        (META.replace(".MyTuner", ""), "className: 'my_tuner' must name a module and a class"),
        (META.replace("MyTuner", "Other"), "module 'my_tuner' has no class 'Other'"),
        (META.replace("my_tuner", "nowhere_at_all"), "No module named 'nowhere_at_all'"),
        (META + "classArgsValidator: my_tuner.None\n", "my_tuner"),
        (META + "classArgs: 3\n", "classArgs: must be a mapping"),
        ("- 1\n", "must be a mapping"),
        ("algorithms: [1]\n", "algorithms: must be a list of mappings"),
        ("a: [", "meta.yml:1"),
    ],
)
def test_a_wrong_meta_file(nnictl: Run, meta: Path, text: str, word: str) -> None:
    meta.write_text(text)
    result = nnictl("algo", "register", "-m", str(meta))
    assert result.exit_code == 2 and word in result.stderr and len(result.stderr.splitlines()) == 1
    assert [line for line in nnictl("algo", "list").stdout.splitlines() if " user " in line] == []


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["show", "nope"], "cannot find algorithm nope"),
        (["unregister", "nope"], "no algorithm nope is registered"),
        (["unregister", "TPE"], "TPE is built in and cannot be removed"),
        (["register", "-m", "/nowhere.yml"], "/nowhere.yml: cannot be read"),
    ],
)
def test_refused_algorithms(nnictl: Run, meta: Path, words: list[str], word: str) -> None:
    result = nnictl("algo", *words)
    assert result.exit_code in (1, 2) and word in result.stderr and len(result.stderr.splitlines()) == 1


def test_arguments_are_judged_by_the_validator(nnictl: Run, manager: FakeManager, meta: Path) -> None:
    meta.write_text(META + "classArgsValidator: my_tuner.MyValidator\nclassArgs: {size: 3}\n")
    assert nnictl("algo", "register", "-m", str(meta)).exit_code == 0
    config = meta.parent / "experiment.yml"
    for size, code in (("{}", 0), ("{size: 0}", 2)):
        config.write_text(
            "searchSpace: {}\ntrialCommand: 'true'\ntrialConcurrency: 1\ntrainingService: {platform: local}\n"
            f"tuner: {{name: Mine, classArgs: {size}}}\n"
        )
        for words in (["config", "check", str(config)], ["create", "--config", str(config)]):
            result = nnictl(*words)
            assert result.exit_code == code, result.output
            refusal = f"{config}: tuner.classArgs: Mine refuses these arguments: ValueError: size is too small\n"
            assert result.stderr == refusal if code else "refuses" not in result.stderr
    assert len(manager.calls) == 1, "no daemon is asked when the arguments are wrong"


def test_a_built_in_is_shown_and_keeps_its_name(nnictl: Run, meta: Path) -> None:
    assert json.loads(nnictl("algo", "show", "tpe").stdout)["source"] == "built-in"
    meta.write_text(META.replace("Mine", "tpe"))
    result = nnictl("algo", "register", "-m", str(meta))
    assert result.exit_code == 1 and "tpe is the name of a built-in tuner" in result.stderr


def test_a_manager_elsewhere_keeps_its_own(nnictl: Run, meta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNI_MANAGER_ADDRESS", "http://gpu-box:8080")
    result = nnictl("algo", "list")
    assert result.exit_code == 1 and "where its algorithms are registered" in result.stderr
    assert nnictl("algo", "list", "--data-dir", str(meta.parent)).exit_code == 0
