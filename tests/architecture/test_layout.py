"""Small modules, plain packages, telling names, and nothing at the top that does not belong there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
#: A path folder, not a package of ours: its names are NNI's.
STAND_IN = ROOT / "trial_runner" / "stand_in"
MODULES = sorted(path for package in ("nni_manager", "trial_runner") for path in (ROOT / package).rglob("*.py"))
OURS = [path for path in MODULES if not path.is_relative_to(STAND_IN)]
PACKAGES = [path for path in OURS if path.name == "__init__.py"]
#: The package that those who write an adapter begin with a copy of.
SAMPLE = sorted((ROOT / "tests" / "third_party").rglob("*.py"))
MOST_LINES = 400
#: Of a folder, beside its `__init__`.
MOST_MODULES = 20
TOP_LEVEL = {
    "pyproject.toml",
    "nni_manager",
    "trial_runner",
    "tests",
    "configs",
    "Dockerfile",
    ".dockerignore",
    "docker-compose.yml",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    ".ci",
    ".gitignore",
    "docs",
    "requirements",
    ".pre-commit-config.yaml",
}
#: A sentence that begins so leaves its subject to the name below it.
ELLIPTIC = frozenset(
    "Of It By For From In To With That They Them There Nothing These Those Their Until Unless If Because Since Also "
    "Only Not And Or But So Such".split()
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_tree_has_modules() -> None:
    assert len(OURS) > 100 and len(PACKAGES) > 10


def test_no_module_is_long() -> None:
    assert [name(path) for path in MODULES if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(path.parent for path in OURS if path.name != "__init__.py")
    assert {name(folder): count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_formatter_decides_everywhere() -> None:
    mark = "# fmt" + ": "
    written = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "configs").rglob("*.py")]
    assert [name(path) for path in written if mark in path.read_text()] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name(path) for path in OURS if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_docstring_begins_without_a_subject() -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    told = [
        (name(path), ast.get_docstring(node) or "")
        for path in [*OURS, *SAMPLE]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds)
    ]
    assert len(told) > 3000
    assert [(where, text) for where, text in told if text.partition(" ")[0].rstrip(",.;:") in ELLIPTIC] == []


def test_every_exception_from_a_security_rule_has_a_reason() -> None:
    found = [(name(path), line.strip()) for path in MODULES for line in path.read_text().splitlines()]
    exceptions = [(where, line) for where, line in found if re.search(r"# noqa: S\d", line)]
    assert len(exceptions) > 10
    assert [one for one in exceptions if not re.search(r"# noqa: S\d+\W+\w", one[1])] == []


def test_nothing_is_called_utils_or_common() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "misc", "base"}
    assert [name(path) for path in OURS if {path.stem, path.parent.name} & vague] == []


def test_packages_hold_a_docstring_and_re_exports() -> None:
    for path in PACKAGES:
        docstring, *rest = ast.parse(path.read_text()).body
        assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant), name(path)
        logic = [ast.unparse(node) for node in rest if not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
        # the last two: names that are imported late
        allowed = ("pytest.register_assert_rewrite(", "def __getattr__(", "def __dir__(")
        odd = [text for text in logic if not text.startswith(allowed)]
        assert odd == [], name(path)


def test_every_folder_of_modules_is_a_package() -> None:
    assert [name(path) for path in OURS if not (path.parent / "__init__.py").exists()] == []


def test_tests_mirror_the_packages() -> None:
    packages = {path.parent.name for path in PACKAGES if path.parent.parent == ROOT / "nni_manager"}
    tested = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("*/test_*.py")}
    assert sorted(packages - tested) == []


def test_top_folder_holds_the_listed_names_alone() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: what is tracked cannot be told")
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.split("/")[0] for path in found.split("\0") if path} <= TOP_LEVEL
