"""The folder of an experiment: what lies where, and whether its disk can hold a database."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.errors import NotFound, StoreUnavailable
from nni_manager.store.mounts import is_on_network


@dataclass(frozen=True, slots=True)
class Folder:
    """``<experimentWorkingDirectory>/<id>``."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def own_code(self) -> Path:
        """A copy of the code that was sent for it; there is none where trials run the caller's own folder."""
        return self.code / "tree"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def database(self) -> Path:
        """The database: here, or where the pointer says when this folder lies on a network file system."""
        pointer = self._pointer
        if pointer.exists():
            return Path(json.loads(pointer.read_text(encoding="utf-8"))["database"])
        return self.path / "db" / "nni.sqlite"

    def require_database(self) -> Path:
        """`database`. Raises NotFound when it is not there, StoreUnavailable when that cannot be told."""
        try:
            database = self.database
            is_there = database.exists()
        except OSError as error:
            raise StoreUnavailable(f"the folder {self.path} cannot be read ({error.strerror})") from error
        if not is_there:
            raise NotFound(f"the folder of experiment {self.path.name} is gone: {self.path}")
        return database

    @property
    def lock(self) -> Path:
        return self.database.with_name("owner.lock")

    @property
    def _pointer(self) -> Path:
        return self.path / "db" / "pointer.json"

    def create(self, data_directory: Path) -> None:
        """Makes the folders, readable by their owner only. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True)
        for name in ("db", "log", "trials", "checkpoint"):
            (self.path / name).mkdir(mode=0o700)
        if is_on_network(self.path):
            home = data_directory / "databases" / self.path.name
            draft = self._pointer.with_suffix(".tmp")
            draft.write_text(json.dumps({"database": str(home / "nni.sqlite")}), encoding="utf-8")
            draft.replace(self._pointer)  # first: who removes a half-made folder finds the rest by it
            home.mkdir(mode=0o700, parents=True)

    def remove(self) -> bool:
        """Removes what we put there, and the folder itself when nothing else is in it. Whether its database is gone."""
        database = self.database
        shutil.rmtree(database.parent, ignore_errors=True)
        for name in ("db", "log", "trials", "checkpoint", "code", "environments", "scripted"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()
        return not database.exists()

    def attempt(self, directory_name: str) -> Path:
        return self.trials / directory_name
