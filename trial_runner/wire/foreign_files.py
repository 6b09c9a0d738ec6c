"""Files that a trial, a container, an archive or another user may have written: open, read, list, and replace.

Every function takes a folder, as a path or already open, and a name below it, with slashes. No symbolic link is
followed from that folder, itself included, to the file; the caller is responsible for links on the way to the folder.
Only regular files are opened, and no call blocks as opening a pipe would. `removal` removes such files.
"""

import errno
import os
import stat
from contextlib import suppress
from functools import lru_cache
from typing import List, NamedTuple, Sequence, Tuple, Union

from trial_runner.wire import removal
from trial_runner.wire.descriptors import Descriptor

#: Limits of `listing`: number of names, and depth of folders.
MOST_NAMES = 5000
MOST_LEVELS = 16

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors of listing that mean that the folder does not exist.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotRegular(OSError):
    """The path is a folder, a link, a pipe or a device instead of a regular file."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EINVAL, "not a regular file", name)


class OpenFolder:
    """A folder that stays open for several calls on its content; closed on leaving. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, _FOLDER)

    def __enter__(self) -> "OpenFolder":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


#: A folder: its path, or an open one.
Folder = Union[str, OpenFolder]


class Listing(NamedTuple):
    """Paths below a folder, in order."""

    files: List[str]
    #: The listed folder itself comes first.
    folders: List[str]
    #: False: there is more than the limit, or something could not be listed.
    is_complete: bool


def open_file(folder: Folder, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file. Raises OSError; NotRegular if it is something else."""
    *above, last = _parts(name)
    with _opened(folder, above) as parent:
        try:
            descriptor = os.open(last, flags | _FILE, mode, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise NotRegular(name) from error
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(name)
    return descriptor


def read(folder: Folder, name: str, offset: int, limit: int) -> bytes:
    """At most `limit` bytes of a file from `offset` on; a negative one counts from its end. Raises OSError."""
    with Descriptor(open_file(folder, name)) as descriptor:
        start = offset if offset >= 0 else max(0, os.fstat(descriptor).st_size + offset)
        return os.pread(descriptor, limit, start)


def tail(folder: Folder, name: str, limit: int) -> bytes:
    """The last bytes; empty if the file does not exist or is not readable."""
    try:
        return read(folder, name, -limit, limit)
    except OSError:
        return b""


def size(folder: Folder, name: str) -> int:
    """Bytes of a regular file. Raises OSError."""
    return status(folder, name).st_size


def status(folder: Folder, name: str) -> os.stat_result:
    """The status of a regular file. Raises OSError."""
    *above, last = _parts(name)
    with _opened(folder, above) as parent:
        found = os.stat(last, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(name)
    return found


def listing(folder: Folder, name: str) -> Listing:
    """Everything below the folder `name`, except names that begin with a dot; empty if it does not exist.

    Anything beyond the limits is omitted, deeper folders first, and so are unreadable folders.
    """
    files: List[str] = []
    folders: List[str] = []
    waiting, looked_at, is_complete = [name], 0, True
    for here in waiting:  # it grows, as deeper folders are appended
        try:
            inside, count = _names(folder, here, MOST_NAMES - looked_at)
        except OSError as error:
            is_complete = is_complete and error.errno in _NO_FOLDER
            continue
        is_complete = is_complete and looked_at + count <= MOST_NAMES
        looked_at = min(looked_at + count, MOST_NAMES)
        folders.append(here)
        files += ["{}/{}".format(here, each) for each, is_folder in inside if not is_folder]
        below = ["{}/{}".format(here, each) for each, is_folder in inside if is_folder]
        if here.count("/") < MOST_LEVELS:
            waiting += below
        elif below:
            is_complete = False
    return Listing(sorted(files), sorted(folders), is_complete)


def make_folder(folder: Folder, name: str) -> List[str]:
    """Creates the missing folders of the path `name`; returns the created ones. Raises OSError."""
    parts, made = _parts(name), []
    for count, part in enumerate(parts):
        with opened_folder(folder, "/".join(parts[:count])) as parent, suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=parent)
            made.append("/".join(parts[: count + 1]))
    if name not in made:
        with opened_folder(folder, name):
            pass  # it is a folder, and not a link to one
    return made


def opened_folder(folder: Folder, name: str) -> Descriptor:
    """A context with a descriptor of the folder `name`, or of `folder` itself where it is empty. Raises OSError."""
    return _opened(folder, _parts(name) if name else ())


def remove(folder: Folder, name: str) -> List[str]:
    """Removes anything; returns what stays, like `removal.remove`. Raises OSError."""
    *above, last = _parts(name)
    with _opened(folder, above) as parent:
        shown = folder if isinstance(folder, str) else folder.path
        return removal.remove_below(parent, last, os.path.join(shown, name))


def write_whole(folder: Folder, name: str, data: bytes, mode: int = 0o600, is_durable: bool = False) -> None:
    """Writes a file atomically. Anything at its place or its draft's place is removed. Raises OSError.

    `is_durable`: returns when a power failure cannot undo it.
    """
    *above, last = _parts(name)
    with _opened(folder, above) as parent:
        draft = last + ".tmp"
        opened = Descriptor(_new_file(parent, draft, mode))
        try:
            with opened as descriptor:
                write_all(descriptor, data)
                if is_durable:
                    os.fsync(descriptor)
            _rename(parent, draft, last)
        except OSError:
            os.unlink(draft, dir_fd=parent)
            raise
        if is_durable:
            os.fsync(parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of the data. Raises OSError; part of it may be written then."""
    while data:
        data = data[os.write(descriptor, data) :]


def _new_file(parent: int, name: str, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
    try:
        return os.open(name, flags, mode, dir_fd=parent)
    except FileExistsError:
        removal.remove_below(parent, name)
    return os.open(name, flags, mode, dir_fd=parent)


def _rename(parent: int, draft: str, name: str) -> None:
    try:
        os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        removal.remove_below(parent, name)
        os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)


def _opened(folder: Folder, parts: Sequence[str]) -> Descriptor:
    """A folder, opened part by part: O_NOFOLLOW only protects the last part. Raises OSError."""
    is_own = isinstance(folder, str)
    descriptor = os.open(folder, _FOLDER) if isinstance(folder, str) else folder.descriptor
    for part in parts:
        with Descriptor(descriptor, is_own) as outer:
            descriptor, is_own = os.open(part, _FOLDER, dir_fd=outer), True
    return Descriptor(descriptor, is_own)


@lru_cache(maxsize=64)  # nearly all are the same few names
def _parts(name: str) -> Tuple[str, ...]:
    """The parts of a path. Raises OSError if it is not a path below a folder."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if not parts or ".." in parts or name[0] == "/" or not _can_be_a_name(name):
        raise OSError(errno.EINVAL, "not a path below a folder", name)
    return parts


def _can_be_a_name(name: str) -> bool:
    try:
        return "\0" not in name and bool(os.fsencode(name))
    except UnicodeEncodeError:
        return False


def _names(folder: Folder, name: str, most: int) -> Tuple[List[Tuple[str, bool]], int]:
    """(names of files and folders, each with whether it is a folder; total number of names, at least).

    Reads at most `most` names. Raises OSError.
    """
    found: List[Tuple[str, bool]] = []
    count = 0
    with opened_folder(folder, name) as descriptor, os.scandir(descriptor) as entries:
        for count, entry in enumerate(entries, 1):
            if count > most:
                break
            is_folder = entry.is_dir(follow_symlinks=False)
            if not entry.name.startswith(".") and (is_folder or entry.is_file(follow_symlinks=False)):
                found.append((entry.name, is_folder))
    return found, count
