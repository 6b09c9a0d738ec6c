"""Breaks files and restores them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.files.schedule import FileFault, Kind, Target

_COMPANIONS = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Place:
    """The data directory of one experiment; `aside`: folder for files to restore."""

    data: Path
    experiment: str
    aside: Path

    def paths(self, target: Target) -> list[Path]:
        """The existing files or folder. Of outboxes, the youngest."""
        home = self.data / self.experiment
        database, index = home / "db" / "nni.sqlite", self.data / "index.sqlite"
        found = {
            Target.INDEX: [index],
            Target.INDEX_SET: [Path(f"{index}{suffix}") for suffix in _COMPANIONS],
            Target.IDENTITY: [self.data / "identity"],
            Target.PLACE: [self.data / "identity.place"],
            Target.DATABASE: [database],
            Target.DATABASE_SET: [Path(f"{database}{suffix}") for suffix in _COMPANIONS],
            Target.WAL: [Path(f"{database}-wal")],
            Target.SHM: [Path(f"{database}-shm")],
            Target.LOG: [home / "log"],
            Target.KEEPER: [self.data / "keeper"],
            Target.SETTINGS: [self.data / "settings.yml"],
        }
        if target is Target.OUTBOX:
            return _youngest(home / "trials")
        return [path for path in found[target] if path.exists()]

    def copy(self, fault: FileFault) -> None:
        """Make the copy that `fault` restores later."""
        for path in self.paths(fault.target) if fault.kind is Kind.RESTORE else ():
            if path.suffix == ".sqlite":
                with contextlib.closing(sqlite3.connect(path)) as source:
                    with contextlib.closing(sqlite3.connect(self._copy_of(path))) as copy:
                        source.backup(copy)
            elif path.is_dir():
                shutil.copytree(path, self._copy_of(path), dirs_exist_ok=True, copy_function=_copy_if_there)
            elif not path.name.endswith(("-wal", "-shm")):
                shutil.copy2(path, self._copy_of(path))

    def apply(self, fault: FileFault) -> Callable[[], None]:
        """Cause a fault; returns the function that undoes it. Missing files are ignored.

        settings.yml is always repaired: with half a setting a daemon refuses to start.
        """
        paths = self.paths(fault.target)
        if fault.target is Target.SETTINGS and fault.kind in (Kind.TRUNCATE, Kind.EMPTY):
            texts = {path: path.read_text() for path in paths}
            _cut(paths, fault.kind)
            return lambda: _write(texts)
        return self._apply(paths, fault.kind)

    def _apply(self, paths: list[Path], kind: Kind) -> Callable[[], None]:
        match kind:
            case Kind.REMOVE | Kind.RENAME:
                return self._take_away(paths, copied=kind is Kind.REMOVE)
            case Kind.READ_ONLY:
                return _without_write(paths)
            case Kind.TRUNCATE | Kind.EMPTY:
                _cut(paths, kind)
            case Kind.RESTORE:
                for path in paths:
                    self._restore(path)
        return _nothing

    def _take_away(self, paths: list[Path], *, copied: bool) -> Callable[[], None]:
        """`copied`: restore a new file with the same content."""
        kept = {path: self._copy_of(path).with_name(f"{path.name}.away") for path in paths}
        for path, away in kept.items():
            if copied:
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, away)
                _remove(path)
            else:
                path.rename(away)

        def mend() -> None:
            for path in kept:
                for companion in _companions(path) if len(kept) > 1 else [path]:
                    _remove(companion)  # what was made in its place meanwhile
            for path, away in kept.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                away.rename(path)

        return mend

    def _restore(self, path: Path) -> None:
        copy = self._copy_of(path)
        if not copy.exists():  # the companion of a database
            return _remove(path)
        _remove(path)
        shutil.move(copy, path)

    def _copy_of(self, path: Path) -> Path:
        self.aside.mkdir(exist_ok=True)
        return self.aside / path.name


def _youngest(trials: Path) -> list[Path]:
    found = [path for path in trials.glob("*/outbox/*.jsonl") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)[-1:]


def _companions(path: Path) -> list[Path]:
    return [Path(f"{path}{suffix}") for suffix in _COMPANIONS]


def _without_write(paths: list[Path]) -> Callable[[], None]:
    modes = {path: path.stat().st_mode & 0o777 for path in paths}
    if len(paths) > 1:  # a database that cannot be written as a whole: its folder neither
        modes[paths[0].parent] = paths[0].parent.stat().st_mode & 0o777
    for path, mode in modes.items():
        path.chmod(mode & 0o555)

    def mend() -> None:
        for path, mode in modes.items():
            with contextlib.suppress(FileNotFoundError):  # SQLite removes a log that is not needed any more
                path.chmod(mode)

    return mend


def _copy_if_there(source: str, copy: str) -> None:
    """Copies a file of a running keeper, which may remove it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, copy)


def _write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text)


def _cut(paths: list[Path], kind: Kind) -> None:
    for path in paths:
        if kind is Kind.TRUNCATE:
            os.truncate(path, path.stat().st_size // 2)
        else:
            _empty(path)


def _empty(path: Path) -> None:
    if not path.is_dir():
        os.truncate(path, 0)
        return
    for inner in path.iterdir():
        _remove(inner)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _nothing() -> None:
    pass
