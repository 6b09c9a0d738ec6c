"""The folder of an experiment: what lies where, and whether its disk can hold a database."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

#: SQLite's WAL needs shared memory, which these do not offer between machines.
_NETWORK_FILE_SYSTEMS = (
    "nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "afs", "9p",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.blobfuse", "fuse.blobfuse2", "fuse.s3fs", "fuse.rclone",
)  # fmt: skip


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
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def database(self) -> Path:
        """The database: here, or where the pointer says when this folder lies on a network file system."""
        pointer = self._pointer
        if pointer.exists():
            return Path(json.loads(pointer.read_text())["database"])
        return self.path / "db" / "nni.sqlite"

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
            draft.write_text(json.dumps({"database": str(home / "nni.sqlite")}))
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


def is_on_network(path: Path) -> bool:
    """Whether `path` lies on a file system that other machines write too."""
    real = os.path.realpath(path)
    mounted = psutil.disk_partitions(all=True)  # of two on one point the later one covers the earlier
    best = max(
        (part for part in reversed(mounted) if _is_below(real, part.mountpoint)),
        key=lambda part: len(part.mountpoint),
        default=None,
    )
    return best is not None and best.fstype in _NETWORK_FILE_SYSTEMS


def _is_below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
