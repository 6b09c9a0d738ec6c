"""The files that all services of an experiment share in its folder on storage, and the marker file of each service.

The marker file proves to a machine or container that it has mounted the same storage. While it exists, the service uses
the shared files; the last service that leaves removes them. Each service has its own, as queued jobs know the content
of theirs. Services of one folder write and remove files one after the other.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from nni_manager.shared_storage import storage_folders

_MARK = ".nni-storage."
#: The trial runner, and packed code directories.
_SHARED = ("runner-*.pyz", "code-*.tar.gz")
#: All files that attempts of an experiment share.
SHARED_PATTERNS = (f"{_MARK}*", *_SHARED)


class ServiceMark:
    """The marker file of a service. `folder`: the experiment's. Methods block, and raise OSError."""

    def __init__(self, folder: Path, service: str) -> None:
        self.name = f"{_MARK}{service}"
        self._folder = folder

    @contextmanager
    def put(self) -> Iterator[str]:
        """A context with the content of the marker file, in which shared files may be written.

        The marker file is written first, and no other service of this process removes shared files meanwhile.
        """
        path = self._folder / self.name
        with _alone_in(self._folder):
            write_once(path, lambda draft: draft.write_text(secrets.token_hex(8), encoding="ascii"))
            yield path.read_text(encoding="ascii").strip()

    def remove(self) -> None:
        """Removes the marker file, and the shared files unless another service has one. Ignores a missing folder."""
        with suppress(FileNotFoundError), _alone_in(self._folder):
            (self._folder / self.name).unlink(missing_ok=True)
            if not any(self._folder.glob(f"{_MARK}*")):
                for path in (path for pattern in _SHARED for path in self._folder.glob(pattern)):
                    path.unlink(missing_ok=True)


#: A lock for each folder in use, by device and inode: services may have it at several mount points.
_locks: WeakValueDictionary[tuple[int, int], threading.Lock] = WeakValueDictionary()
_finding = threading.Lock()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    status = folder.stat()
    with _finding:
        lock = _locks.setdefault((status.st_dev, status.st_ino), threading.Lock())
    with lock:
        yield


def write_once(path: Path, write: Callable[[Path], object], sha256: str = "") -> None:
    """Writes a file atomically. An existing file stays, as a job may be reading it, unless its SHA-256 differs from the
    one given. Raises OSError."""
    if storage_folders.has_sha256(path, sha256) if sha256 else path.exists():
        return
    write_whole(path, write)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file atomically, replacing an existing one. Raises OSError."""
    draft = path.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        write(draft)
        draft.chmod(0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
