"""The page of the package on an index: what `pyproject.toml` names, without links that lead nowhere there."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from nni_manager.assessors import registry as assessors
from nni_manager.tuners import registry as tuners
from tests.docs import pages

pytestmark = pytest.mark.unit

PROJECT: dict[str, Any] = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["project"]
PAGE = pages.ROOT / PROJECT["readme"]
TEXT = PAGE.read_text()


def test_every_link_has_an_address() -> None:
    assert re.findall(r"\]\((?!https?://)[^)]*\)", TEXT) == []


def test_files_that_it_names_are_there() -> None:
    named = re.findall("`([^`]+)`", TEXT.rpartition("source distribution:")[2])
    assert len(named) == 3 and all((pages.ROOT / name).exists() for name in named)


def test_program_is_that_of_the_page_about_python() -> None:
    (program,) = [block for block in pages.blocks(PAGE) if block.language == "python"]
    assert program.text in (pages.DOCS / "python.md").read_text()


def test_extras_are_those_that_users_install() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [name for name in PROJECT["optional-dependencies"] if name != "dev"]


def test_classifiers_fit_the_oldest_python() -> None:
    versions = [one.rpartition(".")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert f">=3.{min(map(int, versions))}" == PROJECT["requires-python"]


def test_every_algorithm_is_named() -> None:
    built_in = [*tuners.CATALOGUE.built_in, *assessors.CATALOGUE.built_in]
    assert len(built_in) > 10
    assert [one.name for one in built_in if not re.search(rf"\b{one.name}\b", TEXT)] == []
