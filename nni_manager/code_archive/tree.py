"""A code directory: reads and lists it without ever following symbolic links, even new ones.

Symbolic links are packed as links, so their targets must be inside the directory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nni_manager.domain.errors import InvalidInput
from trial_runner.wire.descriptors import Descriptor

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# a named pipe would block until it has a writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Changed(Exception):
    """A file or folder changed while it was read; `path` is relative to the code directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Tree:
    """A folder, opened once. Paths below it are relative, with slashes; the empty path is the folder itself."""

    def __init__(self, directory: Path) -> None:
        """Open the folder. Raises InvalidInput."""
        self.directory = directory
        try:
            # the given path of the folder may be a link
            self._root = os.open(directory, _FOLDER & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidInput(
                f"trialCodeDirectory: cannot find folder {str(directory)!r}; correct the path."
            ) from error
        except OSError as error:
            raise self.refusal("", f"cannot be read ({error.strerror}); allow this user to read it") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of the folder at `path`. Raises Changed, InvalidInput."""
        with self.reading(path):
            descriptor = self._open_folder(path)
        with Descriptor(descriptor):
            yield descriptor

    def _open_folder(self, path: str) -> int:
        # one part at a time, because O_NOFOLLOW checks only the last part of a path
        descriptor = os.dup(self._root)
        for part in path.split("/") if path else ():
            with Descriptor(descriptor) as outer:
                descriptor = os.open(part, _FOLDER, dir_fd=outer)
        return descriptor

    def open_file(self, folder: int, name: str) -> int | None:
        """A descriptor of a regular file; None for other kinds. Raises OSError, ELOOP for a link."""
        descriptor = os.open(name, _FILE, dir_fd=folder)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Convert a disk error about `path` to Changed or InvalidInput."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE):
                raise Changed(path) from error
            raise self.refusal(path, f"cannot be read ({error.strerror}); allow this user to read it") from error

    def refusal(self, path: str, what: str) -> InvalidInput:
        """An InvalidInput about `path` with the problem and the next step."""
        # repr: names may contain line breaks and bytes that are not text
        where = f"{path!r} in {str(self.directory)!r}" if path else repr(str(self.directory))
        instead = ", or list it in .nniignore" if path else ""
        return InvalidInput(f"trialCodeDirectory: {where} {what}{instead}.")


def contained_target(tree: Tree, folder: str, name: str, target: str) -> str:
    """The target to pack for the link `folder`/`name`; an absolute one is made relative.

    Raises InvalidInput for a broken link, or one whose path leaves the tree anywhere. A link to a file that
    `.nniignore` excludes is kept, as by git.
    """
    path = join(folder, name)
    root = os.path.realpath(tree.directory)
    try:
        found = _follow(root, os.path.join(root, folder), target)
    except OSError as error:
        reason = f"is a link to {target!r}, which cannot be followed ({error.strerror}); correct the link"
        raise tree.refusal(path, reason) from error
    if found is None:
        reason = f"is a link that leads out of it, to {target!r}; copy its target into the directory"
        raise tree.refusal(path, reason)
    return os.path.relpath(found, os.path.join(root, folder)) if os.path.isabs(target) else target


def _follow(root: str, start: str, target: str) -> str | None:
    """The path of a link's target; None if it, or a step on the way, is outside `root`. Raises OSError."""
    if os.path.isabs(target):
        place = os.path.realpath(target, strict=True)
        return place if _is_inside(root, place) else None
    place = start
    for part in target.split("/"):
        place = os.path.realpath(os.path.join(place, part), strict=True)
        if not _is_inside(root, place):
            return None  # '../code/model.py' leads back here, but not in the unpacked archive
    return place


def _is_inside(root: str, place: str) -> bool:
    return os.path.commonpath((root, place)) == root


def join(folder: str, name: str) -> str:
    """The path of an entry of a folder; the path of the code directory itself is empty."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or a symbolic link of the code directory."""

    name: str
    #: The target of a link; empty for a file.
    target: str = ""
    is_executable: bool = False
    #: Size in bytes; 0 for a link.
    size: int = 0
    #: Differs when the file is another one or was written to.
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of the code directory, without its subfolders."""

    #: Relative to the code directory; empty for itself.
    path: str
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All included files of a code directory: folders before their content, in the order of their names' bytes."""

    folders: tuple[Folder, ...]
    #: False: there is more, but this is far too much already.
    is_complete: bool = True

    @property
    def files(self) -> int:
        """Number of files and links."""
        return sum(len(folder.entries) for folder in self.folders)

    @property
    def bytes(self) -> int:
        return sum(folder.bytes for folder in self.folders)


def first_difference(one: Listing, other: Listing) -> str:
    """The path of the first difference of two listings, which must differ."""
    return min(path for path, _ in set(_things(one)) ^ set(_things(other)))


def _things(listing: Listing) -> Iterator[tuple[str, Entry | None]]:
    for folder in listing.folders:
        yield folder.path, None
        for entry in folder.entries:
            yield join(folder.path, entry.name), entry
