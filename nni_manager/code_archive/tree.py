"""A code directory: reading below it without ever following a symbolic link, even one that is put there meanwhile; and
its listing of files, folders, and symbolic links, which travel as links, so what they lead to must travel too."""

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
    """Something below the folder is no longer what it was a moment ago; `path` is relative to the folder."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Tree:
    """A folder, opened once. Paths below it are relative, with slashes; the empty path is the folder itself."""

    def __init__(self, directory: Path) -> None:
        """Opens the folder. Raises InvalidInput."""
        self.directory = directory
        try:
            # the user may name the folder by a link
            self._root = os.open(directory, _FOLDER & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidInput(
                f"trialCodeDirectory: there is no folder {str(directory)!r}; correct the path."
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
        # one part at a time: O_NOFOLLOW guards the last part of a path only
        descriptor = os.dup(self._root)
        for part in path.split("/") if path else ():
            with Descriptor(descriptor) as outer:
                descriptor = os.open(part, _FOLDER, dir_fd=outer)
        return descriptor

    def open_file(self, folder: int, name: str) -> int | None:
        """A descriptor of a regular file; None for what is none. Raises OSError; ELOOP when it is a link."""
        descriptor = os.open(name, _FILE, dir_fd=folder)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Turns an error of the disk about `path` into Changed or InvalidInput."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE):
                raise Changed(path) from error
            raise self.refusal(path, f"cannot be read ({error.strerror}); allow this user to read it") from error

    def refusal(self, path: str, what: str) -> InvalidInput:
        """An InvalidInput about `path`, one sentence: what is wrong, and what to do unless the user leaves it out."""
        # repr: names may hold line breaks and bytes that are no text
        where = f"{path!r} in {str(self.directory)!r}" if path else repr(str(self.directory))
        instead = ", or list it in .nniignore" if path else ""
        return InvalidInput(f"trialCodeDirectory: {where} {what}{instead}.")


def contained_target(tree: Tree, folder: str, name: str, target: str) -> str:
    """The target to pack for the link `folder`/`name`: as it is, or relative when it is an absolute one.

    Raises InvalidInput when the link leads out of the tree on any part of its way, or to nothing. A link to something
    that `.nniignore` leaves out is kept: git keeps it too.
    """
    path = join(folder, name)
    root = os.path.realpath(tree.directory)
    try:
        found = _follow(root, os.path.join(root, folder), target)
    except OSError as error:
        reason = f"is a link to {target!r}, which cannot be followed ({error.strerror}); correct the link"
        raise tree.refusal(path, reason) from error
    if found is None:
        reason = f"is a link that leads out of it, to {target!r}; put what it leads to into the directory"
        raise tree.refusal(path, reason)
    return os.path.relpath(found, os.path.join(root, folder)) if os.path.isabs(target) else target


def _follow(root: str, start: str, target: str) -> str | None:
    """The path that a link leads to; None when it, or a place on the way, is outside `root`. Raises OSError."""
    if os.path.isabs(target):
        place = os.path.realpath(target, strict=True)
        return place if _is_inside(root, place) else None
    place = start
    for part in target.split("/"):
        place = os.path.realpath(os.path.join(place, part), strict=True)
        if not _is_inside(root, place):
            return None  # '../code/model.py' comes back here, but not where it is unpacked
    return place


def _is_inside(root: str, place: str) -> bool:
    return os.path.commonpath((root, place)) == root


def join(folder: str, name: str) -> str:
    """The path of something in a folder; that of the code directory itself is empty."""
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
    """A folder of the code directory, without the folders in it."""

    #: Relative to the code directory; empty for itself.
    path: str
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that travels of a code directory: folders before what is in them, in the order of their names' bytes."""

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
    """The path of the first thing on which two listings do not agree; they must differ."""
    return min(path for path, _ in set(_things(one)) ^ set(_things(other)))


def _things(listing: Listing) -> Iterator[tuple[str, Entry | None]]:
    for folder in listing.folders:
        yield folder.path, None
        for entry in folder.entries:
            yield join(folder.path, entry.name), entry
