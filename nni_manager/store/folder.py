"""An experiment's folder: its paths, its creation and removal, its owner, and network file systems."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.errors import AlreadyOwned, NotFound, StoreCorrupt, StoreUnavailable
from nni_manager.platform_kit import registry
from nni_manager.store import private
from trial_runner.wire import foreign_files, removal
from trial_runner.wire.descriptors import Descriptor, try_lock
from trial_runner.wire.foreign_files import NotRegular

#: The kernel's table: device, mount point and type per line; see fstab(5).
_TABLE = Path("/proc/self/mounts")
_ESCAPED = re.compile(rb"\\(\d{3})")
#: SQLite's WAL needs shared memory, which these do not provide between machines.
_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb3",
    "smbfs",
    "ceph",
    "lustre",
    "glusterfs",
    "beegfs",
    "gpfs",
    "afs",
    "9p",
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.blobfuse",
    "fuse.blobfuse2",
    "fuse.s3fs",
    "fuse.rclone",
)


def is_on_network(path: Path) -> bool:
    """Whether `path` is on a network file system, where other machines may write."""
    real = os.path.realpath(path)
    below = [(point, kind) for point, kind in _mounted() if f"{real}/".startswith(point.rstrip("/") + "/")]
    # of two mounts on one point, the later hides the earlier
    return bool(below) and max(reversed(below), key=lambda mount: len(mount[0]))[1] in _NETWORK_FILE_SYSTEMS


def _mounted() -> list[tuple[str, str]]:
    """(mount point, type) in mount order; empty: /proc/self/mounts cannot be read."""
    try:
        lines = _TABLE.read_bytes().splitlines()
    except OSError:
        return []
    return [(_text(point), _text(kind)) for _, point, kind, *_ in (line.split(b" ") for line in lines)]


def _text(field: bytes) -> str:
    """Decodes a field, in which blanks and backslashes are octal escapes."""
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))


#: Below the data directory: databases of folders on network file systems.
_DATABASES = "databases"
#: Entries that an experiment's folder may have.
_OURS = ("log", "trials", "checkpoint", "code", "environments", "labels.json", *private.FILES)
#: Removed last, in this order, so that leftovers of an interrupted removal do not look like an experiment.
_LAST = ("db", "deleted")
#: Folders that an open experiment writes into → consequence of a missing one.
_LOST = {
    "log": "its earlier log is lost",
    "trials": "logs and unread results of its trials are lost; restore the folder if you have a copy",
    "checkpoint": "the tuner's files there are lost; restore the folder if you have a copy",
}
#: Files that NNI's launcher creates in ``log``.
_OF_LAUNCHER = {"experiment.log", "nnictl_stdout.log", "nnictl_stderr.log"}
_POINTER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of an experiment, ``<experimentWorkingDirectory>/<id>``."""

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
        """The experiment's copy of uploaded code; missing if trials run the caller's folder."""
        return self.code / "tree"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def database(self) -> Path:
        """The database: in this folder, or at the path in its pointer file, for folders on network file systems.

        Raises StoreCorrupt for an invalid pointer, OSError for an unreadable one.
        """
        return self._database_of_pointer() or self.path / "db" / "nni.sqlite"

    @property
    def private(self) -> Path:
        """The file with environment and secrets: in this folder, or next to a database elsewhere. Raises as
        `database`."""
        elsewhere = self._database_of_pointer()
        return self.path / private.FILE if elsewhere is None else elsewhere.with_name(private.FILE)

    def require_database(self) -> Path:
        """The database's path. Raises NotFound if it is missing, StoreCorrupt if it is empty, StoreUnavailable if that
        cannot be checked.

        SQLite would turn an empty file into a new database, and remove the write-ahead log next to it.
        """
        try:
            database = self.database
            size = database.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            what, where = ("database", self.database) if self.path.exists() else ("folder", self.path)
            raise NotFound(f"the {what} of experiment {self.path.name} is gone: {where}") from None
        except OSError as error:
            raise StoreUnavailable(f"the folder {self.path} cannot be read ({error.strerror})") from error
        if size == 0 and stat.S_ISREG(database.stat().st_mode):
            raise StoreCorrupt(f"the database {database} is empty (0 bytes); restore it from a backup")
        return database

    @property
    def lock(self) -> Path:
        return self.database.with_name("owner.lock")

    @property
    def _pointer(self) -> Path:
        return self.path / "db" / "pointer.json"

    def _database_of_pointer(self) -> Path | None:
        try:
            entry = json.loads(foreign_files.read(str(self._pointer.parent), self._pointer.name, 0, _POINTER_BYTES))
            return Path(entry["database"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, RecursionError, NotRegular):
            raise StoreCorrupt(
                f"{self._pointer} does not say where the database is; restore it from a backup"
            ) from None

    @property
    def is_free(self) -> bool:
        return not os.path.lexists(self.path)

    @property
    def is_laid_out(self) -> bool:
        """Whether the folder contains only files that NNI's launcher creates before it starts a manager."""
        try:
            return os.listdir(self.path) == ["log"] and set(os.listdir(self.log)) <= _OF_LAUNCHER
        except OSError:
            return False

    @property
    def _deletion(self) -> Path:
        """Exists while a user's deletion of the experiment is carried out."""
        return self.path / "deleted"

    @property
    def is_to_be_deleted(self) -> bool:
        """Whether a user requested the deletion. A note elsewhere does not count, as it may be older than the
        folder."""
        return self._deletion.exists()

    def mark_deletion(self, *, is_wanted: bool) -> None:
        """Marks the folder as deleted by a user, or removes the mark. Ignores a missing folder. Raises OSError."""
        if not is_wanted:
            self._deletion.unlink(missing_ok=True)
        elif self.path.is_dir():
            self._deletion.touch(mode=0o600)
            sync(self.path)

    def sync(self) -> None:
        """Writes the folder, its database and the entry of both to the disk. Raises OSError."""
        for path in (self.database, self.database.parent, self.path / "db", self.path, self.path.parent):
            sync(path)

    def create(self, data_directory: Path) -> None:
        """Creates the folders with mode 0700; fills an existing one if it `is_laid_out`. Raises OSError."""
        has_log = self.is_laid_out
        self.path.mkdir(mode=0o700, parents=True, exist_ok=has_log)
        for name in ("db", "log", "trials", "checkpoint"):
            (self.path / name).mkdir(mode=0o700, exist_ok=has_log and name == "log")
        self._link_trials()
        if is_on_network(self.path):
            home = data_directory / _DATABASES / self.path.name
            pointer = json.dumps({"database": str(home / "nni.sqlite")})
            # first, so that the removal of an incomplete folder finds the rest
            foreign_files.write_whole(os.path.realpath(self._pointer.parent), self._pointer.name, pointer.encode())
            home.mkdir(mode=0o700, parents=True)

    def make_missing(self) -> list[str]:
        """Creates missing folders that are written into; returns sentences about the losses. Raises OSError."""
        made = []
        for name in _LOST:
            with suppress(FileExistsError):
                (self.path / name).mkdir(mode=0o700)
                made.append(name)
        return [f"the folder {self.path / name} was missing and was created again: {_LOST[name]}" for name in made]

    def _link_trials(self) -> None:
        """Links the trials at NNI 3.0's path for this machine, as scripts use it."""
        place = self.path / "environments" / "local-env"
        with suppress(OSError):  # links are not supported: the link is optional
            for folder in (place.parent, place):
                folder.mkdir(mode=0o700)
            (place / "trials").symlink_to("../../trials")

    def remove(self) -> list[str]:
        """Removes our entries, and then the folder itself if it is empty.

        Returns a sentence for each entry that could not be removed. Blocks; never raises.
        """
        findings: list[str] = []
        with suppress(OSError, StoreCorrupt):
            home = self.database.parent
            if (
                home.name == self.path.name and home.parent.name == _DATABASES
            ):  # otherwise the pointer names a foreign folder
                findings += removal.remove(str(home))
        if findings:  # the pointer is needed for the next attempt
            return findings
        for name in (*_OURS, *self._of_services(), *_LAST):
            findings += removal.remove(str(self.path / name))
        with suppress(OSError):
            self.path.rmdir()
        return findings

    def _of_services(self) -> list[str]:
        """Names of the folders that adapters made here, which are their services' names."""
        platforms = "|".join(map(re.escape, registry.names()))
        with suppress(OSError):
            return [name for name in os.listdir(self.path) if re.fullmatch(rf"(?:{platforms})(?:-[0-9]+)?", name)]
        return []


def sync(path: Path) -> None:
    """Returns when a power failure cannot undo the writes to a file, or the new names in a folder. Raises OSError."""
    with Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


class Ownership:
    """Holds the lock file `path` until `release`. Raises AlreadyOwned, naming the holder's process, and OSError."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(self._file):
            holder = os.read(self._file, 32).decode(errors="replace").strip()
            os.close(self._file)
            raise AlreadyOwned(f"{what} is in use by process {holder or 'unknown'}")
        try:
            os.truncate(self._file, 0)
            os.write(self._file, f"{os.getpid()}\n".encode())
        except OSError:  # the disk is full
            self.release()
            raise

    @property
    def is_in_place(self) -> bool:
        """Whether the lock file is still at its path; its folder may have been moved, deleted or replaced."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the disk does not answer now
            return True

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
