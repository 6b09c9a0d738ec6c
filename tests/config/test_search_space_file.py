"""`searchSpaceFile`: JSON first, then YAML; failures name that file and its line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nni_manager.config.experiment_file import from_canonical
from nni_manager.config.reading import yaml_reader
from nni_manager.domain.errors import Problem
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]

SPACE = {"x": {"_type": "choice", "_value": [0.001, "on", None, True]}}

GOOD = [
    '{"x": {"_type": "choice", "_value": [1e-3, "on", null, true]}}',
    '{\n\t"x": {"_type": "choice", "_value": [1e-3, "on", null, true],},}',
    "x:\n  _type: choice\n  _value: [1e-3, 'on', null, On]\n",
]

BAD = [
    ('{"x": 1,\n "y": 2\n "z": 3}', 3, "not valid JSON: Expecting ',' delimiter"),
    ('{"x": 1,\n "x": 2}', 2, "given twice, first in line 1"),
    ("x: 1\ny: [1\n", 2, "not valid YAML"),
    ("x: 1\nx: 2\n", 2, "given twice"),
    ("[1]", 1, "must be a mapping"),
    ("", 1, "must be a mapping of names to values, not nothing"),
    ('{"x": NaN}', 1, "infinite or not a number"),
    ("[" * 5000, 1, "nested more than"),
    ('{"x":' + "[" * 500 + "]" * 500 + "}", 1, "nested more than"),
]


@pytest.mark.parametrize("text", GOOD, ids=["json", "tabs and commas", "yaml"])
def test_good_files(load_with: Load, tmp_path: Path, text: str) -> None:
    (tmp_path / "space").write_text(text)
    spec = load_with(searchSpace=None, searchSpaceFile="space")
    assert spec.search_space == spec.canonical["searchSpace"] == SPACE
    assert "searchSpaceFile" not in spec.canonical


@pytest.mark.parametrize(("text", "line", "words"), BAD, ids=range(len(BAD)))
def test_bad_files(refusals: Refusals, tmp_path: Path, text: str, line: int, words: str) -> None:
    (tmp_path / "space").write_text(text)
    [problem] = refusals(searchSpace=None, searchSpaceFile="space")
    assert (problem.file, problem.line) == (str((tmp_path / "space").resolve()), line)
    assert problem.field == "searchSpaceFile"
    assert words in problem.message


def test_search_space_file_overrides_search_space(load_with: Load, tmp_path: Path) -> None:
    (tmp_path / "space").write_text(GOOD[0])
    spec = load_with(searchSpace={"y": {"_type": "choice", "_value": [1]}}, searchSpaceFile="space")
    assert spec.search_space == SPACE
    assert ("NO_EFFECT", "searchSpace") in [(one.code, one.field) for one in spec.warnings]


def test_stored_nni_config_has_space_and_its_file_name(load_with: Load) -> None:
    canonical = {**load_with(searchSpace=SPACE).canonical, "searchSpaceFile": "/gone/space.json"}
    spec = from_canonical(canonical)
    assert spec.search_space == SPACE and "searchSpaceFile" not in spec.canonical


WRONG = """\
rate: {_type: loguniform, _value: [0, 1]}
fine: {_type: uniform, _value: [0, 1]}
model:
  _type: choice
  _value:
    - _name: small
    - _name: large
      layers: {_type: randint, _value: [1, 5]}
      width:
        _type: randint
        _value: [5, 1]
"""
PLACES = [(1, "rate", "low of loguniform must be"), (9, "model._value[1].width", "randint draws low <= x < high")]


def places(problems: list[Problem]) -> list[tuple[int, str, str]]:
    return [
        (problem.line, problem.field, problem.message[: len(words)])
        for problem, (_, _, words) in zip(problems, PLACES, strict=True)
    ]


def test_every_wrong_dimension_is_named_with_its_line(refusals: Refusals) -> None:
    space = "search_space:\n" + textwrap.indent(WRONG, "  ")
    rest = "trialCommand: x\ntrialConcurrency: 1\ntuner: {name: TPE}\ntrainingService: {platform: local}\n"
    problems = refusals(space + rest)
    assert places(problems) == [(line + 1, f"search_space.{field}", words) for line, field, words in PLACES]
    assert {problem.file for problem in problems} == {"bee.yml"}


@pytest.mark.parametrize("form", [str, lambda text: json.dumps(yaml.safe_load(text), indent=None)])
def test_wrong_dimension_in_a_search_space_file_is_named(
    refusals: Refusals, tmp_path: Path, form: Callable[[str], str]
) -> None:
    (tmp_path / "space").write_text(text := form(WRONG))
    problems = refusals(searchSpace=None, searchSpaceFile="space")
    several = "\n" in text
    assert places(problems) == [(line if several else 1, field, words) for line, field, words in PLACES]
    assert {problem.file for problem in problems} == {str((tmp_path / "space").resolve())}


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        ("[{a: 1}, 2]", True),
        ("[{_name: a, r: {_type: uniform, _value: [0, 1]}}, 2]", True),
        ("[{a: 1}, {b: 2}]", False),
        ("[{_name: a}, {_name: b}]", False),
        ("[1, x, null]", False),
    ],
)
@pytest.mark.parametrize("in_file", [True, False])
def test_a_choice_of_mappings_and_others_is_warned_of(
    load_with: Load, tmp_path: Path, value: str, warned: bool, in_file: bool
) -> None:
    text = f"y: {{_type: randint, _value: [0, 2]}}\nx: {{_type: choice, _value: {value}}}\n"
    (tmp_path / "space").write_text(text)
    given = {"searchSpace": None, "searchSpaceFile": "space"} if in_file else {"searchSpace": yaml.safe_load(text)}
    found = [one for one in load_with(**given).warnings if one.code == "MIXED_CHOICE"]
    assert [one.field for one in found] == (["x" if in_file else "searchSpace.x"] if warned else [])
    assert all("with a _name" in one.message and (one.line == 2 or not in_file) for one in found)


def test_a_missing_file_is_a_problem_of_the_config(refusals: Refusals) -> None:
    [problem] = refusals(searchSpace=None, search_space_file="space")
    assert (problem.file, problem.field) == ("bee.yml", "search_space_file")
    assert "cannot find file" in problem.message


def test_a_file_in_another_encoding(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "space").write_bytes("x:\n  é: 1".encode("utf-16"))
    [problem] = refusals(searchSpace=None, searchSpaceFile="space")
    assert (problem.line, problem.field) == (1, "searchSpaceFile")
    assert "not UTF-8 text" in problem.message


def test_search_space_file_is_parsed_once_for_lines(
    refusals: Refusals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = yaml_reader.parse
    monkeypatch.setattr(yaml_reader, "parse", lambda text: parsed.append(text) or parse(text))
    text = "".join(f"x{number}: {{_type: nope, _value: [1]}}\n" for number in range(20))
    (tmp_path / "space").write_text(text)
    assert len(refusals(searchSpace=None, searchSpaceFile="space")) == 20
    assert parsed.count(text) == 2, "once to read it, once for all lines"


def test_search_for_faults_ends_at_the_limit(refusals: Refusals) -> None:
    space = {f"x{number}": {"_type": "nope", "_value": [1]} for number in range(300)}
    assert len(refusals(searchSpace=space)) == 100
    assert len(refusals(**{f"unknown{number}": 1 for number in range(300)})) == 100
