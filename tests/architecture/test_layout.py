"""House rules: short functions and modules, plain packages, telling names, and only listed names in the top folder."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import yaml

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
#: A path folder, not a package of ours: its names are NNI's.
STAND_IN = ROOT / "trial_runner" / "stand_in"
MODULES = sorted(path for package in ("nni_manager", "trial_runner") for path in (ROOT / package).rglob("*.py"))
OURS = [path for path in MODULES if not path.is_relative_to(STAND_IN)]
PACKAGES = [path for path in OURS if path.name == "__init__.py"]
#: The package that authors of adapters copy.
SAMPLE = sorted((ROOT / "tests" / "third_party").rglob("*.py"))
MOST_LINES = 400
#: A module has more lines than this; a third of them may be shorter.
FEWEST_LINES = 100
#: Of a folder, without its `__init__`.
MOST_MODULES = 20
#: Lines of code of a function, without docstring, comments and blank lines.
MOST_LINES_OF_A_FUNCTION = 40
#: Functions that are longer, with their lines of code: they may shrink, and none is added.
LONG_FUNCTIONS = {
    "nni_manager/app/serve.py::_listeners": 56,
    "nni_manager/app/serve.py::_serve": 42,
    "nni_manager/machines/ssh/bootstrap.py::arrive": 42,
    "nni_manager/machines/ssh/login_faults.py::login_fault": 44,
    "nni_manager/platforms/remote/preflight.py::_judge": 43,
    "nni_manager/scheduler/experiments/experiment_folder.py::make": 43,
    "nni_manager/scheduler/turns/experiment_loop.py::__init__": 42,
    "nni_manager/scheduler/turns/training_service.py::__init__": 43,
    "nni_manager/scheduler/turns/turn.py::_write": 60,
    "nni_manager/scheduler/turns/turn.py::take_turn": 41,
}
#: Private functions of one line that are named once. Each must have a name that says more than its body.
MOST_HELPERS_WITH_ONE_CALLER = 85
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


def test_most_modules_are_chapters() -> None:
    lines = [len(path.read_text().splitlines()) for path in OURS if path.name != "__init__.py"]
    assert FEWEST_LINES <= median(lines) <= MOST_LINES
    assert sum(number < FEWEST_LINES for number in lines) <= len(lines) / 3


def test_functions_carry_one_thought() -> None:
    lines = {(path, function): _lines_of_code(path, function) for path in OURS for function in _functions(path)}
    assert len(lines) > 5000 and median(lines.values()) <= 10
    long = {
        f"{name(path)}::{function.name}": number
        for (path, function), number in lines.items()
        if number > MOST_LINES_OF_A_FUNCTION
    }
    assert {key: number for key, number in long.items() if number > LONG_FUNCTIONS.get(key, 0)} == {}
    assert LONG_FUNCTIONS.keys() - long.keys() == set(), "no longer long: remove the line"


def test_long_function_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('def one():\n    """Two\n    lines."""\n\n    # why\n    call(\n        1,\n    )\n')
    (function,) = _functions(module)
    assert _lines_of_code(module, function) == 4


def test_private_helper_has_two_callers_or_a_telling_name() -> None:
    assert len([one for path in OURS for one in _helpers_with_one_caller(path)]) <= MOST_HELPERS_WITH_ONE_CALLER


def test_private_helper_with_one_caller_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "def _once(x):\n    return x\n\ndef _twice(x):\n    return x\n\nvalue = _once(_twice(_twice(1)))\n"
    )
    assert list(_helpers_with_one_caller(module)) == [f"{module}::_once"]


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _lines_of_code(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return len(_code(path) & set(range(function.lineno, (function.end_lineno or 0) + 1)))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _code(path: Path) -> frozenset[int]:
    """Numbers of the lines that hold more than comments and docstrings."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    lines = {line for token in tokens if token.type not in silent for line in range(token.start[0], token.end[0] + 1)}
    texts = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Expr) and _is_docstring(node)]
    return frozenset(lines - {line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)})


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _helpers_with_one_caller(path: Path) -> Iterator[str]:
    nodes = list(ast.walk(_tree(path)))
    named = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    named += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
    for function in _functions(path):
        body = [node for node in function.body if not _is_docstring(node)]
        is_short = (
            len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) and body[0].lineno == body[0].end_lineno
        )
        is_private = re.match("_[^_]", function.name) and not function.decorator_list
        if is_private and is_short and named[function.name] == 1:
            yield f"{path}::{function.name}"


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(path.parent for path in OURS if path.name != "__init__.py")
    assert {name(folder): count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_formatter_decides_everywhere() -> None:
    mark = "# fmt" + ": "
    written = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "configs").rglob("*.py")]
    assert [name(path) for path in written if mark in path.read_text()] == []


def test_every_module_has_a_docstring() -> None:
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


def test_commit_hooks_see_the_changed_files_alone() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"].split()[:2] for hook in hooks] == [[".venv/bin/ruff", "format"], [".venv/bin/ruff", "check"]]
    assert not any(hook.keys() & {"pass_filenames", "always_run"} for hook in hooks)
