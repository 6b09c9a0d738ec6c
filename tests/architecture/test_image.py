"""The image is of locked versions, and its builder gets what it copies alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
BUILD = (ROOT / "Dockerfile").read_text().partition(" AS build\n")[2].partition("\nFROM ")[0].replace("\\\n", " ")
#: What is copied from the tree, by the order of its line.
COPIED = [word for line in re.findall(r"^COPY (.+) \S+$", BUILD, re.MULTILINE) for word in line.split()]


def test_every_package_is_installed_from_the_lock() -> None:
    installs = re.findall(r"pip install (.+?)(?: &&|$)", BUILD, re.MULTILINE)
    of_lock, of_sources = (line.split() for line in installs)
    assert of_lock[-3:] == ["--require-hashes", "-r", "requirements/image.txt"]
    assert {"--no-deps", "--no-build-isolation"} <= set(of_sources) and of_sources[-1] == "."


def test_sources_are_copied_after_what_the_lock_installs() -> None:
    assert COPIED[0] == "requirements/image.txt"
    assert BUILD.index("--require-hashes") < BUILD.index("COPY nni_manager")


def test_builder_gets_what_is_copied_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*" and lines[-1] == "**/__pycache__"
    assert lines[1:-1] == [f"!{path}" for path in COPIED]
    assert all((ROOT / path).exists() for path in COPIED)
