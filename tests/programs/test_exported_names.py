"""Names that programs import from `nni_manager`."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nni_manager
from nni_manager.domain.errors import ConfigInvalid, Conflict

pytestmark = pytest.mark.unit


def test_every_name_is_there_and_has_a_type() -> None:
    stub = Path(nni_manager.__file__).with_name("__init__.pyi").read_text()
    for name in nni_manager._MODULES:
        assert getattr(nni_manager, name).__name__ == name and f" as {name}\n" in stub


def test_errors_that_programs_catch_are_among_them() -> None:
    assert (nni_manager.ConfigInvalid, nni_manager.Conflict) == (ConfigInvalid, Conflict)


def test_names_are_completed_and_imported_by_a_star() -> None:
    found: dict[str, Any] = {}
    exec("from nni_manager import *", found)
    assert set(nni_manager._MODULES) <= found.keys() and set(nni_manager._MODULES) <= set(dir(nni_manager))


def test_listing_names_imports_none() -> None:
    program = "import nni_manager, sys; dir(nni_manager); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert not {"nni_manager.programs", "nni_manager.client", "nni_manager.domain"} & set(done.stdout.split())


def test_errors_that_docstrings_promise_are_exported() -> None:
    public = (nni_manager.Experiment, nni_manager.AsyncExperiment, nni_manager.optimize)
    texts = [inspect.getdoc(one) or "" for thing in public for one in (thing, *_methods(thing))]
    promised = {name for text in texts for name in _promised(text)}
    assert {"ConfigInvalid", "ExperimentFailed", "InvalidInput", "NotFound"} <= promised
    assert {name for name in promised if not hasattr(builtins, name)} <= set(nni_manager._MODULES)


def test_page_has_every_error() -> None:
    page = (Path(nni_manager.__file__).parents[1] / "docs" / "python.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Errors\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(name for name in nni_manager._MODULES if _is_error(getattr(nni_manager, name)))


def _methods(thing: object) -> list[object]:
    return (
        [one for name, one in inspect.getmembers(thing) if not name.startswith("_")] if inspect.isclass(thing) else []
    )


def _promised(docstring: str) -> list[str]:
    """The errors after each `Raises`, up to the end of its sentence."""
    sentences = re.findall(r"Raises ([^.]+)\.", docstring)
    return [name for sentence in sentences for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", sentence)]


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)
