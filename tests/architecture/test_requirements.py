"""`pyproject.toml` declares what is imported, nothing else, and the locks are of what it declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nni_manager.platform_kit import registry
from tests import installed

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
STAND_IN = ROOT / "trial_runner" / "stand_in"
#: Extras of users that the image has; the others are for programs and tests, which run elsewhere.
IMAGE = ["azure", "dlc", "gp", "kubernetes", "ssh"]
#: Extras of tests and tools, not meant for users.
DEV = "dev"
#: Declared, imported nowhere.
NEVER_IMPORTED = {
    "h11": "httpcore imports it: only the lower bound is ours",
    "sniffio": "httpcore imports it, and searches the whole path at each call where it is not there",
    "plotly": "found by find_spec: the pages serve its plotly.min.js",
}
#: Imported, of another Python than ours, which may have it.
IN_USERS_PYTHON = {
    "nni": "NNI's own, behind the stand-in",
    "numpy": "what users' tuners hand over",
}
#: Imported where a program happens to have it.
IN_PROGRAMS = {"pandas": "a table of trials", "rich": "a bar", "tqdm": "a bar"}
#: Modules below these paths may import the packages of these extras, too. Platforms declare their own.
WITH_EXTRAS = {
    "nni_manager/kubernetes": "kubernetes",
    "nni_manager/machines/ssh": "ssh",
    "nni_manager/kubernetes/jobs/storage.py": "azure",
    "nni_manager/platform_kit/testing": "testing",
    "nni_manager/programs": "programs",
    **{f"nni_manager/tuners/models/{name}.py": "gp" for name in ("model_search", "gp", "smac")},
    **{f"nni_manager/platforms/{one.name}": one.extra for one in registry.descriptions() if one.extra},
}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it, but for those of Python and our own."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    own = {"nni_manager", "trial_runner"} | {place.stem for place in STAND_IN.glob("nni_*.py")}
    return {name for name in names if name.partition(".")[0] not in own | sys.stdlib_module_names}


def extras_of(path: str) -> set[str]:
    """The extras with packages that a file may import; "" is every installation."""
    return {"", *(extra for place, extra in WITH_EXTRAS.items() if path == place or path.startswith(f"{place}/"))}


def declared(extra: str = "") -> dict[str, Requirement]:
    """The requirements of every installation, or those of an extra, by the package's name."""
    texts = EXTRAS[extra] if extra else PYPROJECT["project"]["dependencies"]
    found = [Requirement(text) for text in texts]
    return {canonicalize_name(one.name): one for one in found if one.name != "nni-manager"}


def by_extra() -> dict[str, dict[str, Requirement]]:
    """The requirements of every installation, by "", and those of each extra that users install."""
    return {extra: declared(extra) for extra in ("", *EXTRAS) if extra != DEV}


@cache
def files(package: str) -> dict[str, set[str]]:
    """What each file of a package of ours imports, by its path."""
    return {str(path.relative_to(ROOT)): imported(path) for path in (ROOT / package).rglob("*.py")}


def test_imports_of_the_manager_are_declared() -> None:
    brought = {extra: {m for name in of for m in installed.modules(name)} for extra, of in by_extra().items()}
    undeclared = {
        f"{path}: {module}"
        for path, modules in files("nni_manager").items()
        for module in modules
        if not any(module in brought[extra] for extra in extras_of(path))
        and not (path.startswith("nni_manager/programs/") and module.partition(".")[0] in IN_PROGRAMS)
    }
    assert undeclared == set()


def test_trial_runner_imports_the_standard_library_alone() -> None:
    modules = {module.partition(".")[0] for found in files("trial_runner").values() for module in found}
    assert modules == set(IN_USERS_PYTHON)


def test_declared_packages_are_imported() -> None:
    needs: dict[str, set[str]] = defaultdict(set)
    for path, modules in files("nni_manager").items():
        for extra in extras_of(path):
            needs[extra] |= modules
    idle = {name for extra, of in by_extra().items() for name in of if not installed.modules(name) & needs[extra]}
    assert idle == set(NEVER_IMPORTED)


def test_every_range_has_a_lower_bound() -> None:
    """What has no lower bound is told by another package."""
    unbounded = {str(one) for of in by_extra().values() for one in of.values() if not one.specifier}
    assert unbounded == {"pydantic-core"}


def locked(lock: str) -> dict[str, list[str]]:
    """The versions of each package in a lock: several where they differ by Python. Fails on a line of another kind."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", "")
    versions: dict[str, list[str]] = {}
    for line in (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")):
        found = re.fullmatch(r"([a-z0-9-]+)==(\S+)( ; [^#]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", line)
        assert found, f"{lock}: {line[:200]}"
        versions.setdefault(found[1], []).append(found[2])
    return versions


@pytest.mark.parametrize(("lock", "extras"), [("dev.txt", sorted(EXTRAS)), ("demo.txt", ["gp"]), ("image.txt", IMAGE)])
def test_lock_has_every_declared_package(lock: str, extras: list[str]) -> None:
    """What fails here wants `make lock`."""
    wanted = [one for extra in ("", *extras) for one in declared(extra).values()]
    wanted += [Requirement(text) for text in PYPROJECT["build-system"]["requires"]]
    versions = locked(lock)
    outside = [str(one) for one in wanted if not _is_met(one, versions.get(canonicalize_name(one.name), []))]
    assert outside == []


@pytest.mark.parametrize("lock", ["demo.txt", "image.txt"])
def test_other_locks_have_the_versions_of_the_tests(lock: str) -> None:
    assert locked(lock).items() <= locked("dev.txt").items()


def test_nni_lock_matches_its_requirements() -> None:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements" / "nni3.in").read_text().splitlines()]
    wanted, versions = [Requirement(line) for line in lines if line], locked("nni3.txt")
    assert wanted and all(_is_met(one, versions.get(one.name, [])) for one in wanted)


def _is_met(wanted: Requirement, versions: list[str]) -> bool:
    return bool(versions) and all(wanted.specifier.contains(version, prereleases=True) for version in versions)


def test_needed_packages_include_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {
        "one": ["Two_Is[more]>=1", "never; python_version < '3'", "left; extra == 'other'"],
        "two-is": ["three", "four; extra == 'more'", "left; extra == 'less'"],
        "three": [],
        "four": ["one"],
    }
    for name, texts in needs.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1", *(f"Requires-Dist: {text}" for text in texts)]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed.needed_by("one") == set(needs)
