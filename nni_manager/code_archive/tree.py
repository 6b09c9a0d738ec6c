"""Reading below a folder without ever following a symbolic link, even one that is put there meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from nni_manager.domain.errors import InvalidInput

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
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_folder(self, path: str) -> int:
        # one part at a time: O_NOFOLLOW guards the last part of a path only
        descriptor = os.dup(self._root)
        for part in path.split("/") if path else ():
            try:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
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
