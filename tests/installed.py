"""Installed packages and their dependencies, from their metadata; and packages that a test creates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_by(name: str) -> set[str]:
    """The names of a package and of all its dependencies in this Python."""
    seen: set[tuple[str, str]] = set()
    _follow(name, set(), seen)
    return {name for name, _ in seen}


def _follow(name: str, extras: set[str], seen: set[tuple[str, str]]) -> None:
    for extra in {"", *extras}:
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                _follow(needed.name, needed.extras, seen)


def places(name: str) -> set[Path]:
    """The top-level folders and files that a package has installed on Python's path."""
    package = metadata.distribution(name)
    tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    return {Path(str(package.locate_file(top))) for top in tops}


@cache
def modules(name: str) -> frozenset[str]:
    """The importable modules of a package: ``azure.core.exceptions``."""
    files = metadata.distribution(name).files or ()
    parts = [(*file.parent.parts, file.name.partition(".")[0]) for file in files if file.suffix in {".py", ".so"}]
    return frozenset(".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts)


def announce(folder: Path, package: str, group: str, points: Mapping[str, str]) -> None:
    """Install a package that contains only these entry points (name → object) in a folder on the path."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    lines = [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
