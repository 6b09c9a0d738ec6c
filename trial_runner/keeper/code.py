"""The code of experiments on a machine that has it sent: taken in piece by piece, unpacked for each job, removed.

An archive lies in its experiment's folder, named by the hash of what is in it, and is whole once it has that name. What
another experiment has already is linked, not sent again.
"""

import base64
import binascii
import os
from contextlib import suppress
from typing import Any, Dict, List, Optional

from trial_runner import code_archive, protocol
from trial_runner.keeper import requests
from trial_runner.keeper.background import BackgroundWork, Then
from trial_runner.keeper.requests import Message, Refusal
from trial_runner.wire import removal
from trial_runner.wire.foreign_files import write_all

_PART = ".part"


def put(message: Message) -> Dict[str, Any]:
    """Adds a piece to `file`; one that does not begin where the last ended is left out. Answers the bytes there are."""
    path, size = requests.folder(message, "file"), requests.count(message, "size", 0)
    if os.path.exists(path) or _link(path):
        return {"bytes": size}
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = os.open(path + _PART, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        there = os.fstat(part).st_size
        if requests.count(message, "offset", 0) == there:
            os.lseek(part, there, os.SEEK_SET)
            there += _write(part, message)
    finally:
        os.close(part)
    if there == size:
        os.rename(path + _PART, path)
    elif there > size:  # of another file
        os.unlink(path + _PART)
        there = 0
    return {"bytes": there}


class Unpacking:
    """The unpacking of code for jobs about to be started. A job asked for twice meanwhile is one: unpacked once."""

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background
        #: Folder → who waits for it.
        self._waiting: Dict[str, List[Then]] = {}

    def begin(self, message: Message, then: Then) -> None:
        """Unpacks into the folder that a spawn's `code` names. Raises Refusal for a bad request, and OSError."""
        code = message.get("code")
        if not isinstance(code, dict):
            raise Refusal(protocol.INVALID, "The argument 'code' must be an object of archive and folder.")
        archive, folder = requests.folder(code, "archive"), requests.folder(code, "folder")
        sha256 = requests.text(code, "sha256", "")
        if folder in self._waiting:
            self._waiting[folder].append(then)
            return
        self._background.run(lambda: _unpack(archive, folder, sha256), lambda refusal: self._end(folder, refusal))
        self._waiting[folder] = [then]

    def _end(self, folder: str, refusal: Optional[Refusal]) -> None:
        for then in self._waiting.pop(folder):
            then(refusal)


def remove(background: BackgroundWork, message: Message, then: Then) -> None:
    """A folder with all that is in it. Raises Refusal for a bad request."""
    folder = requests.folder(message, "folder")
    background.run(lambda: _remove(folder), then)


def _unpack(archive: str, folder: str, sha256: str) -> None:
    if not os.path.exists(archive):
        raise Refusal(protocol.UNAVAILABLE, "The code archive {} is not there: send it again.".format(archive))
    try:
        code_archive.unpack(archive, folder, sha256)
    except code_archive.DamagedArchive as error:
        with suppress(OSError):
            os.unlink(archive)
        raise Refusal(protocol.UNAVAILABLE, str(error)) from error


def _remove(folder: str) -> None:
    findings = removal.remove(folder)
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
    """Whether another experiment's folder beside this one had it."""
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
