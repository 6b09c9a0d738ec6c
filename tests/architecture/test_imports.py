"""The import contracts of `pyproject.toml`, and the syntax that trial containers understand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", *command], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.acceptance
def test_import_contracts_are_kept() -> None:
    found = run("import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))")
    assert found.returncode == 0, found.stdout + found.stderr
    assert " 0 broken." in found.stdout


@pytest.mark.unit
def test_every_layer_of_the_contract_exists() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract for contract in contracts if contract.get("exhaustive")]
    names = {name.strip() for line in layers["layers"] for name in line.split("|")}
    modules = {path.stem for path in (ROOT / "nni_manager").iterdir() if path.suffix == ".py" or _is_package(path)}
    assert names == modules - {"__init__"}


@pytest.mark.unit
def test_every_package_is_in_the_reading_order_and_on_the_page() -> None:
    packages = {path.name for path in (ROOT / "nni_manager").iterdir() if _is_package(path)}
    order = (ast.get_docstring(ast.parse((ROOT / "nni_manager" / "__init__.py").read_text())) or "").split("\n\n")
    (read,) = [part for part in order if part.startswith("Read in this order")]
    table = (ROOT / "docs" / "architecture.md").read_text().partition("| Folder |")[2].partition("\n\n")[0]
    rows = " ".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)).replace("nni_manager/", "")
    assert [sorted(packages - set(re.findall(r"`(\w+)`", text))) for text in (read, rows)] == [[], []]


@pytest.mark.unit
def test_only_contracts_limit_imports() -> None:
    inits = [*(ROOT / "nni_manager").rglob("__init__.py"), *(ROOT / "trial_runner").rglob("__init__.py")]
    told = [str(path.relative_to(ROOT)) for path in inits if re.search(r"[Mm]ay import|Imports:", path.read_text())]
    assert len(inits) > 60 and told == []


@pytest.mark.unit
def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types alone count, and those inside functions."""
    graph = grimp.build_graph("nni_manager", "trial_runner", cache_dir=None)
    assert circle({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}) == []


@pytest.mark.unit
def test_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules that are left when those that import none of the others are taken away, again and again, and so
    with those that none of the others imports; empty: no cycle."""
    left = dict(imports)
    while idle := {one for one, those in left.items() if not those & left.keys()}:
        left = {one: those for one, those in left.items() if one not in idle}
    while unread := left.keys() - {one for those in left.values() for one in those}:
        left = {one: those for one, those in left.items() if one not in unread}
    return sorted(left)


@pytest.mark.unit
def test_contract_names_every_module_of_the_trial_runner() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (named,) = [c["forbidden_modules"] for c in contracts if "trial_runner.keeper" in c.get("forbidden_modules", ())]
    entries = [path for path in (ROOT / "trial_runner").iterdir() if path.suffix == ".py" or _is_package(path)]
    assert set(named) == {f"trial_runner.{path.stem}" for path in entries} - {
        "trial_runner.__init__",
        "trial_runner.protocol",
        "trial_runner.tuner_host",
        "trial_runner.wire",
    }


@pytest.mark.unit
def test_plan_imports_no_database() -> None:
    """The contract forbids our store; this, all that is outside of this project."""
    modules = (ROOT / "nni_manager" / "scheduler" / "planning").glob("*.py")
    assert {module.name: found for module in modules if (found := _imported(module) & {"sqlite3", "asyncio"})} == {}


@pytest.mark.acceptance
def test_trial_runner_is_python_3_7() -> None:
    program = "import sys; sys.argv[0] = 'vermin'; from vermin import main; main()"
    found = run(program, "-q", "-t=3.7-", "--no-tips", "--violations", "trial_runner")
    assert found.returncode == 0, found.stdout + found.stderr


def _imported(module: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes]
    return {name.partition(".")[0] for name in names}


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()
