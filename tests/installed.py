"""What is installed here and what that needs, as the packages' own metadata say."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_by(name: str) -> set[str]:
    """The names of all packages that this one needs in this Python, and its own."""
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
    """The folders and files that a package has put where Python looks for modules, in no other's folder."""
    package = metadata.distribution(name)
    tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    return {Path(str(package.locate_file(top))) for top in tops}


@cache
def modules(name: str) -> frozenset[str]:
    """The modules that a package has, as they are imported: ``azure.core.exceptions``."""
    files = metadata.distribution(name).files or ()
    parts = [(*file.parent.parts, file.name.partition(".")[0]) for file in files if file.suffix in {".py", ".so"}]
    return frozenset(".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts)
