"""The default direction of a user's tuner class, as its Python reads it, and what `config check` makes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nni_manager.cli.main import nnictl
from nni_manager.config import user_classes
from nni_manager.domain.algorithm import AlgorithmSpec

pytestmark = pytest.mark.unit

CLASSES = """
import enum

from nni.tuner import Tuner


class Mode(enum.Enum):
    MINIMIZE = "minimize"


class Plain(Tuner):
    def __init__(self, optimize_mode="minimize"):
        pass


class Inherits(Plain):
    pass


class HandsOn(Plain):
    def __init__(self, width=1, **others):
        super().__init__(**others)


class Listed(Plain):
    def __init__(self, *, optimize_mode=Mode.MINIMIZE):
        pass


class Replaces(Plain):
    def __init__(self, width=1):
        super().__init__("maximize")


class Without(Tuner):
    pass


class Unnamed(Tuner):
    def __init__(self, optimize_mode=None):
        pass


class Overrides(Inherits):
    def __init__(self, optimize_mode="maximize"):
        pass


def made(optimize_mode="minimize"):
    return Plain(optimize_mode)
"""
FILE = """
searchSpace: {{x: {{_type: uniform, _value: [0, 1]}}}}
trialCommand: 'true'
trialConcurrency: 1
tuner: {{className: mine.{name}, codeDirectory: .{arguments}}}
trainingService: {{platform: local}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CLASSES)
    return tmp_path


async def test_default_is_found_where_the_class_or_a_base_has_it(folder: Path) -> None:
    names = ("Plain", "Inherits", "HandsOn", "Listed", "Replaces", "Without", "Unnamed", "Overrides", "made")
    asked = {name: AlgorithmSpec(class_name=f"mine.{name}", code_directory=str(folder)) for name in names}
    found = await user_classes.find(asked, sys.executable, os.environ, with_arguments=True)
    assert found.refusals == {}
    assert found.directions == {
        **dict.fromkeys(("Plain", "Inherits", "HandsOn", "Listed", "made"), "minimize"),
        "Overrides": "maximize",
    }


@pytest.mark.parametrize(
    ("name", "arguments", "warning"),
    [
        ("Inherits", "", "the lowest result counts as best (default of Inherits)"),
        ("Without", "", "the highest result counts as best (direction not set)"),
        ("Plain", ", classArgs: {optimize_mode: maximize}", ""),
    ],
)
def test_config_check_warns_unless_file_states_direction(folder: Path, name: str, arguments: str, warning: str) -> None:
    (folder / "exp.yml").write_text(FILE.format(name=name, arguments=arguments))
    result = CliRunner().invoke(nnictl, ["config", "check", str(folder / "exp.yml")])
    assert result.exit_code == 0, result.stderr
    assert (warning in result.stderr) if warning else result.stderr == ""
