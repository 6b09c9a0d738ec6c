"""The code of experiments on a machine that receives it: stored piece by piece, unpacked once, copied for each job.

An archive is in its experiment's folder, named by the hash of its content, and complete once it has that name. If
another experiment has it already, it is linked, not sent again. Copies share blocks with the original if the file
system supports that (a clone with copy-on-write); otherwise everything is copied. Hard links are not used between
them: a trial would see what another one writes into its code.
"""

import base64
import binascii
import fcntl
import os
import stat
from contextlib import suppress
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trial_runner import protocol
from trial_runner.keeper.code.background import BackgroundWork, Tell, Then
from trial_runner.keeper.serving import requests
from trial_runner.keeper.serving.requests import Message, Refusal, system_refusal
from trial_runner.wire import code_archive, removal
from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.foreign_files import write_all

#: ``_IOW(0x94, 9, int)`` of Linux: the file shares all blocks of the other one until either is written.
_FICLONE = 0x40049409
_COPY_BYTES = 8 * 1024 * 1024


class Copies:
    """Copies a folder. `tell`: called with the number of bytes copied so far."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._bytes = 0
        self._may_clone = True

    def copy(self, source: str, target: str) -> None:
        """Copies the content of a folder, replacing files of the same name. Raises OSError."""
        os.makedirs(target, exist_ok=True)
        with os.scandir(source) as entries:
            for entry in list(entries):
                self._copy_entry(entry, os.path.join(target, entry.name))

    def _copy_entry(self, entry: "os.DirEntry[str]", target: str) -> None:
        if entry.is_dir(follow_symlinks=False):
            self.copy(entry.path, target)
            return
        if os.path.lexists(target):
            os.unlink(target)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        else:
            self._copy_file(entry.path, target)

    def _copy_file(self, source: str, target: str) -> None:
        with Descriptor(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as reader:
            state = os.fstat(reader)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with Descriptor(os.open(target, flags, stat.S_IMODE(state.st_mode))) as writer:
                if not self._clone(reader, writer):
                    self._copy_bytes(reader, writer, state.st_size)
        self._bytes += state.st_size
        self._tell(self._bytes)

    def _clone(self, reader: int, writer: int) -> bool:
        if not self._may_clone:
            return False
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
        except OSError:
            self._may_clone = False
        return self._may_clone

    def _copy_bytes(self, reader: int, writer: int, size: int) -> None:
        done = 0
        while done < size:
            sent = os.sendfile(writer, reader, done, min(_COPY_BYTES, size - done))
            if not sent:
                return
            done += sent
            self._tell(self._bytes + done)


_PART = ".part"

#: Called with the step, and its done and total bytes; 0: unknown.
TellStep = Callable[[str, int, int], None]


def put(message: Message) -> Dict[str, Any]:
    """Appends a piece to `file` if its offset is the file's end. Returns the file's size in bytes."""
    path, size = requests.folder(message, "file"), requests.count(message, "size", 0)
    if os.path.exists(path) or _link(path):
        return {"bytes": size}
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with Descriptor(os.open(path + _PART, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as part:
        there = os.fstat(part).st_size
        if requests.count(message, "offset", 0) == there:
            os.lseek(part, there, os.SEEK_SET)
            there += _write(part, message)
    if there == size:
        os.rename(path + _PART, path)
    elif there > size:  # left over from another file
        os.unlink(path + _PART)
        there = 0
    return {"bytes": there}


class Unpacking:
    """Code for jobs about to start: each archive is unpacked once, next to itself, and copied for each job."""

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background
        #: Archive that is being unpacked → requests that wait for it.
        self._waiting: Dict[str, List[_Wish]] = {}

    def begin(self, code: object, then: Then, tell: TellStep) -> None:
        """Puts code into the folder in a spawn's `code`. Raises Refusal for an invalid request, and OSError."""
        if not isinstance(code, dict):
            raise Refusal(protocol.INVALID, "The argument 'code' must be an object of archive and folder.")
        archive, folder = requests.folder(code, "archive"), requests.folder(code, "folder")
        wish = _Wish(archive, folder, requests.text(code, "sha256", ""), then, tell)
        if wish.archive in self._waiting:
            self._waiting[wish.archive].append(wish)
        elif os.path.isdir(wish.archive + protocol.CODE_TREE):
            self._copy(wish)
        else:
            self._unpack(wish)

    def drop(self, code: Message) -> None:
        """Removes the copy of a job that will not start; if no process can do that, it stays until its experiment is
        removed."""
        folder = requests.folder(code, "folder")
        with suppress(OSError):
            self._background.run(lambda _: _remove(folder), lambda _: None, writes=folder)

    def _unpack(self, wish: "_Wish") -> None:
        archive = wish.archive
        size = _unpacked_bytes(archive)
        self._background.run(
            lambda tell: _unpack(archive, wish.sha256, tell),
            lambda refusal: self._unpacked(archive, refusal),
            lambda done: self._tell_all(archive, done, size),
            writes=archive + protocol.CODE_TREE,
        )
        self._waiting[archive] = [wish]

    def _tell_all(self, archive: str, done: int, size: int) -> None:
        for wish in self._waiting[archive]:
            wish.tell("unpacked", done, size)

    def _unpacked(self, archive: str, refusal: Optional[Refusal]) -> None:
        for wish in self._waiting.pop(archive):
            if refusal is not None:
                wish.then(refusal)
                continue
            try:
                self._copy(wish)
            except OSError as error:
                wish.then(system_refusal(error, "Copying the code"))

    def _copy(self, wish: "_Wish") -> None:
        size = _unpacked_bytes(wish.archive)
        wish.tell("copied", 0, size)  # it may be queued
        self._background.run(
            lambda tell: _copy(wish.archive, wish.folder, tell),
            wish.then,
            lambda done: wish.tell("copied", min(done, size), size),
            writes=wish.folder,
        )


class _Wish(NamedTuple):
    archive: str
    folder: str
    #: SHA-256 of the archive, in hex; empty: not checked.
    sha256: str
    then: Then
    tell: TellStep


def remove(copying: BackgroundWork, removing: BackgroundWork, message: Message, then: Then) -> None:
    """Removes a folder and its content, after copying into it has ended, and incomplete copies.

    Raises Refusal for an invalid request.
    """
    folder = requests.folder(message, "folder")

    def begin() -> None:
        try:
            removing.run(lambda _: _remove(folder + _PART, folder), then, writes=folder)
        except OSError as error:
            then(system_refusal(error, "Removing {}".format(folder)))

    copying.stop_in(folder, begin)


def _unpacked_bytes(archive: str) -> int:
    """The unpacked size from the last four bytes of a gzip file; 0 if they cannot be read."""
    try:
        with open(archive, "rb") as file:
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
    except OSError:
        return 0


def _require(archive: str) -> None:
    if not os.path.exists(archive):
        raise Refusal(protocol.UNAVAILABLE, "The code archive {} does not exist: send it again.".format(archive))


def _unpack(archive: str, sha256: str, tell: Tell) -> None:
    """Unpacks next to the archive, atomically; leftovers of a killed process are removed first."""
    _require(archive)
    tree, draft = archive + protocol.CODE_TREE, archive + protocol.CODE_TREE + _PART
    _remove(draft)
    try:
        code_archive.unpack(archive, draft, tell, sha256=sha256)
        os.rename(draft, tree)
    except code_archive.DamagedArchive as error:
        with suppress(OSError):
            os.unlink(archive)
        removal.remove(draft)
        raise Refusal(protocol.UNAVAILABLE, str(error)) from error
    except BaseException:
        removal.remove(draft)
        raise


def _copy(archive: str, folder: str, tell: Tell) -> None:
    _require(archive)
    try:
        Copies(tell).copy(archive + protocol.CODE_TREE, folder)
    except BaseException:
        removal.remove(folder)  # nothing runs there, and the partial copy may fill the disk
        raise


def _remove(*folders: str) -> None:
    findings = [finding for folder in folders for finding in removal.remove(folder)]
    if findings:
        raise Refusal(protocol.UNAVAILABLE, "; ".join(findings))


def _write(part: int, message: Message) -> int:
    try:
        data = base64.b64decode(requests.text(message, "data", ""), validate=True)
    except binascii.Error:
        raise Refusal(protocol.INVALID, "The argument 'data' must be base64.") from None
    before = os.fstat(part).st_size
    try:
        write_all(part, data)
    except OSError:
        os.ftruncate(part, before)
        raise
    return len(data)


def _link(path: str) -> bool:
    """Whether another experiment's folder next to this one has it."""
    here = os.path.dirname(path)
    experiments = os.path.dirname(here)
    with suppress(OSError):
        for name in os.listdir(experiments):
            other = os.path.join(experiments, name, os.path.basename(path))
            if os.path.isfile(other):
                os.makedirs(here, mode=0o700, exist_ok=True)
                os.link(other, path)
                return True
    return False
