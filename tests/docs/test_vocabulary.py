"""Every word that a user may meet is explained on some page, and the pages name no others."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import pytest

from nni_manager.api.application import create_api
from nni_manager.api.nni import application as nni
from nni_manager.api.nni.status import StatusAnswers
from nni_manager.assessors import registry as assessors
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import ServiceStatus, WaitCode
from nni_manager.domain.space import search_space
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners import registry as tuners
from nni_manager.tuners.optuna_tpe import TpeArguments
from tests.api.world import World, make_world
from tests.docs.pages import DOCS, ROOT, table_rows
from trial_runner import protocol

pytestmark = pytest.mark.unit

#: Where a warning is made, or its code is given a name.
_WARNING_CODE = re.compile(r"""(?:Warning\(code=|\.warn\([^"\n]*|^_?[A-Z_]+ = )"([A-Z][A-Z_]+)\"""", re.MULTILINE)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


def text(name: str) -> str:
    return (DOCS / name).read_text()


def section(name: str, heading: str) -> set[str]:
    """First cells of the tables below a heading."""
    part = text(name).split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.strip("|").split("|")[0].strip() for line in part.splitlines() if line.startswith("| `")]
    return {row.strip("`") for row in rows}


@pytest.mark.parametrize(
    ("name", "heading", "words"),
    [
        ("architecture.md", "### A trial", TrialStatus),
        ("architecture.md", "### An experiment", ExperimentStatus),
        ("architecture.md", "### A job", JobState),
        ("troubleshooting.md", "### A trial waits because", WaitCode),
        ("troubleshooting.md", "### A trial ended because", [one for one in Reason if one is not Reason.NONE]),
        ("troubleshooting.md", "### An experiment is on hold because", HoldCode),
    ],
    ids=["trials", "experiments", "jobs", "waits", "reasons", "holds"],
)
def test_tables_of_words_are_complete(name: str, heading: str, words: list[str]) -> None:
    assert section(name, heading) == {str(word) for word in words}


def test_glossary_has_at_most_ten_words() -> None:
    part = text("architecture.md").split("\n## Words\n", 1)[1].split("\n#", 1)[0]
    assert 1 < len(re.findall(r"^\| \*", part, re.MULTILINE)) <= 10


def test_every_code_of_a_warning_is_in_the_table() -> None:
    codes: set[str] = set()
    for path in (ROOT / "nni_manager").rglob("*.py"):
        source = path.read_text()
        if "Warning(code=" in source or "ource.warn(" in source:
            codes |= set(_WARNING_CODE.findall(source))
    assert {"NO_EFFECT", "PREFLIGHT"} < codes
    assert section("troubleshooting.md", "### Warnings") == codes


def test_diagrams_have_every_state() -> None:
    diagrams = text("architecture.md").split("stateDiagram-v2")
    for status in TrialStatus:
        assert status in diagrams[1].split("```")[0]
    for state in ExperimentStatus:
        assert state in diagrams[2].split("```")[0]
    for word in ServiceStatus:
        assert f"`{word}`" in text("architecture.md")


def test_every_variable_of_a_trial_is_explained() -> None:
    names = [
        protocol.ENV_PLATFORM,
        protocol.ENV_EXPERIMENT_ID,
        protocol.ENV_TRIAL_ID,
        protocol.ENV_SEQUENCE_ID,
        protocol.ENV_SYSTEM_DIR,
        protocol.ENV_OUTPUT_DIR,
        protocol.ENV_CODE_DIR,
        protocol.ENV_OUTBOX,
        protocol.ENV_COMMAND_CHANNEL,
        protocol.ENV_GPUS,
        protocol.ENV_JOB,
    ]
    page = text("trials.md")
    assert [name for name in names if f"`{name}`" not in page] == []
    assert str(protocol.MAX_RECORD) in page and f"`{protocol.PARAMETER_FILE}`" in page


def test_every_type_of_a_dimension_is_in_the_table() -> None:
    rows = {row[0]: row[1] for row in table_rows(DOCS / "search-space.md")}
    assert "choice" in rows
    for kind, names in search_space._NUMBERS.items():
        assert rows[kind] == f"[{', '.join(names)}]"


def test_every_algorithm_argument_is_listed_with_default() -> None:
    rows = [row[:3] for row in table_rows(DOCS / "algorithms.md")]
    for catalogue in (tuners.CATALOGUE, assessors.CATALOGUE):
        for algorithm in catalogue.built_in:
            module, _, name = algorithm.location.partition(":")
            defaults = inspect.signature(getattr(importlib.import_module(module), name)).parameters
            for argument in algorithm.arguments or ():
                assert [algorithm.name, argument, _shown(defaults[argument].default)] in rows
            assert algorithm.name in {row[0] for row in rows}
    for field in fields(TpeArguments):
        assert ["TPE, tpe_args", field.name, _shown(field.default)] in rows


def _shown(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    return "none" if default is None else str(default)


def test_every_algorithm_that_is_missing_is_named() -> None:
    page = text("algorithms.md")
    for catalogue in (tuners.CATALOGUE, assessors.CATALOGUE):
        assert [name for name in catalogue.missing if name.removesuffix("Tuner") not in page] == []


def test_every_tuner_is_in_the_table_of_search_spaces() -> None:
    named = {row[0] for row in table_rows(DOCS / "search-space.md")}
    assert set(tuners.CATALOGUE.names) <= named


async def test_every_group_of_routes_is_named(world: World) -> None:
    page = text("rest.md")
    groups = {_group(path) for path in create_api(world.context).openapi()["paths"]}
    assert [group for group in sorted(groups) if f"`{group}`" not in page] == []


def _group(path: str) -> str:
    """`/api/v1/experiments/{id}/trials/…` → `/api/v1/experiments/{id}/trials`; its actions are named next to it."""
    parts = path.split("/")
    is_part = len(parts) > 5 and parts[5] in ("events", "trials", "metrics", "logs", "analysis")
    return "/".join(parts[: 6 if is_part else 5 if parts[-1] == "{id}" else 4])


async def test_every_route_of_nni_is_named(world: World) -> None:
    page = text("rest.md")
    for path in nni._table(StatusAnswers(world.context)):
        assert f"`{path.split('/{')[0]}`" in page, path
