"""Removing files of any depth, size or permission that other users may have written. Failures are answered, not
raised."""

import errno
import os
from contextlib import suppress
from itertools import count
from typing import List, Optional, Set

from trial_runner.wire.descriptors import Descriptor

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Folders that are open at a time, one in the other.
_MOST_LEVELS = 32
#: Folders of one folder that are moved up at a time, and how often at most: new ones may be made all the time.
_AT_A_TIME = 1000
_MOST_LOOKS = 10000
#: Sentences about what stays.
_MOST_FINDINGS = 10


def remove(path: str) -> List[str]:
    """Removes a file, a link, or a folder with all that is in it; quiet where there is none. Blocks.

    Answers what stays, and why: at most ten sentences, none when all is gone. What leads to `path` is the caller's own;
    below that no link is followed.
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
    """Removes a name in an opened folder, as `remove`. `shown`: what sentences call it."""
    return _Removal(parent, name, shown or name).run()


class _Level:
    """A folder that is being emptied. The maker of `descriptor` closes it."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor
        #: Folders in it that are to be removed next.
        self.waiting: List[str] = []
        #: What cannot be removed.
        self.staying: Set[str] = set()
        self.looks = 0


class _Removal:
    """Goes down and up again. What lies too deep is moved up first, so that neither descriptors nor memory run out."""

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
        """Removes what is no folder, and notes some folders. False: nothing new is in it."""
        level.looks += 1
        if level.looks > _MOST_LOOKS:
            self._tell(level.name, "more is put into it all the time")
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
        """Moves a folder to where its turn comes later. Raises OSError."""
        top = self._levels[1].descriptor
        for number in self._numbers:
            try:
                os.rename(name, ".deep-{}".format(number), src_dir_fd=level.descriptor, dst_dir_fd=top)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise

    def _leave(self) -> None:
        """Back to the folder above, from which this one is removed."""
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
        if error.errno != errno.ENOTEMPTY or not self._findings:  # else it was told what is in it
            self._tell(name, error.strerror)

    def _tell(self, name: str, why: Optional[str]) -> None:
        """Tells of what cannot be removed, by its last name: a path may be as long as it likes."""
        if len(self._findings) < _MOST_FINDINGS:
            place = self._shown if len(self._levels) == 1 else "{!r} in {}".format(name, self._shown)
            self._findings.append("{} cannot be removed: {}".format(place, why))


def _open(parent: int, name: str) -> int:
    """Raises OSError. A folder of ours that may not be read or written is given to its owner first."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _allow(parent, name)
        return os.open(name, _FOLDER, dir_fd=parent)
    if os.fstat(descriptor).st_mode & 0o700 != 0o700:
        _allow(parent, name)
    return descriptor


def _allow(parent: int, name: str) -> None:
    """Allows removal from a folder, by descriptor, so that no link is followed, if it is ours. Raises OSError."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with Descriptor(os.open(name, flags, dir_fd=parent)) as descriptor, suppress(OSError):
        os.chmod("/proc/self/fd/{}".format(descriptor), 0o700)  # it is told what cannot be removed where this fails
