"""Removes files of any depth, size or permission that other users may have written. Returns failures."""

import errno
import os
from contextlib import suppress
from itertools import count
from typing import List, Optional, Set

from trial_runner.wire.descriptors import Descriptor

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Maximum number of open folders, one in the other.
_MOST_LEVELS = 32
#: Folders of one folder that are moved up at a time, and maximum number of rounds, as new ones may appear.
_AT_A_TIME = 1000
_MOST_LOOKS = 10000
#: Maximum number of sentences about what stays.
_MOST_FINDINGS = 10


def remove(path: str) -> List[str]:
    """Removes a file, a link, or a folder with its content; ignores a missing one. Blocks.

    Returns at most ten sentences about what stays, and why; empty: everything is gone. The path to `path` must be the
    caller's own; below that no link is followed.
    """
    try:
        parent = os.open(os.path.dirname(path) or ".", _FOLDER & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        return ["{} cannot be removed: {}".format(path, error.strerror)]
    with Descriptor(parent):
        return remove_below(parent, os.path.basename(path), path)


def remove_below(parent: int, name: str, shown: str = "") -> List[str]:
    """Removes a name in an open folder, like `remove`. `shown`: its name in sentences."""
    return _Removal(parent, name, shown or name).run()


class _Level:
    """A folder that is being emptied. The creator of `descriptor` closes it."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor
        #: Folders in it that are removed next.
        self.waiting: List[str] = []
        #: Names that cannot be removed.
        self.staying: Set[str] = set()
        self.looks = 0


class _Removal:
    """Goes down and up again. Deep folders are moved up first, to limit descriptors and memory."""

    def __init__(self, parent: int, name: str, shown: str) -> None:
        self._name = name
        self._shown = shown
        self._findings: List[str] = []
        self._levels = [_Level("", parent)]
        self._numbers = count()

    def run(self) -> List[str]:
        outermost = self._levels[0]
        try:
            if not self._unlink(outermost, self._name):
                self._enter(outermost, self._name)
            while len(self._levels) > 1:
                self._step(self._levels[-1])
        finally:
            for level in self._levels[1:]:
                os.close(level.descriptor)
        return self._findings

    def _step(self, level: _Level) -> None:
        if level.waiting:
            self._enter(level, level.waiting.pop())
        elif not self._look(level):
            self._leave()

    def _look(self, level: _Level) -> bool:
        """Removes everything except folders, and notes some folders. False: nothing new is in it."""
        level.looks += 1
        if level.looks > _MOST_LOOKS:
            self._tell(level.name, "files are being added to it all the time")
            return False
        has_new = False
        try:
            with os.scandir(level.descriptor) as entries:
                for entry in entries:
                    if entry.name in level.staying:
                        continue
                    has_new = True
                    if not self._unlink(level, entry.name):
                        level.waiting.append(entry.name)
                    if len(level.waiting) >= _AT_A_TIME or len(level.staying) >= _AT_A_TIME:
                        break
        except OSError as error:
            self._tell(level.name, error.strerror)
            return False
        return has_new and len(level.staying) < _AT_A_TIME

    def _unlink(self, level: _Level, name: str) -> bool:
        """Removes a file or link; False: it is a folder."""
        try:
            os.unlink(name, dir_fd=level.descriptor)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            return False
        except OSError as error:
            self._keep(level, name, error)
        return True

    def _enter(self, level: _Level, name: str) -> None:
        try:
            inner = _open(level.descriptor, name)
            if len(self._levels) > _MOST_LEVELS:
                os.close(inner)
                self._lift(level, name)
            else:
                self._levels.append(_Level(name, inner))
        except FileNotFoundError:
            pass
        except OSError as error:
            self._keep(level, name, error)

    def _lift(self, level: _Level, name: str) -> None:
        """Moves a folder to a place where it is removed later. Raises OSError."""
        top = self._levels[1].descriptor
        for number in self._numbers:
            try:
                os.rename(name, ".deep-{}".format(number), src_dir_fd=level.descriptor, dst_dir_fd=top)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise

    def _leave(self) -> None:
        """Returns to the folder above, and removes this one from it."""
        done, above = self._levels.pop(), self._levels[-1]
        os.close(done.descriptor)
        try:
            os.rmdir(done.name, dir_fd=above.descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._keep(above, done.name, error)

    def _keep(self, level: _Level, name: str, error: OSError) -> None:
        level.staying.add(name)
        if error.errno != errno.ENOTEMPTY or not self._findings:  # otherwise its content was reported
            self._tell(name, error.strerror)

    def _tell(self, name: str, why: Optional[str]) -> None:
        """Reports what cannot be removed, by its last name: a path may have any length."""
        if len(self._findings) < _MOST_FINDINGS:
            place = self._shown if len(self._levels) == 1 else "{!r} in {}".format(name, self._shown)
            self._findings.append("{} cannot be removed: {}".format(place, why))


def _open(parent: int, name: str) -> int:
    """Raises OSError. A folder of ours without read or write permission gets it first."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _allow(parent, name)
        return os.open(name, _FOLDER, dir_fd=parent)
    if os.fstat(descriptor).st_mode & 0o700 != 0o700:
        _allow(parent, name)
    return descriptor


def _allow(parent: int, name: str) -> None:
    """Allows removal from a folder of ours, by descriptor, so that no link is followed. Raises OSError."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with Descriptor(os.open(name, flags, dir_fd=parent)) as descriptor, suppress(OSError):
        os.chmod("/proc/self/fd/{}".format(descriptor), 0o700)  # if it fails, the removal reports it
