"""Moves a checkpoint between machines; the manager runs it on both of them, in a separate login.

`look` prints one line of JSON, ``{"holds": …}``: whether there is a checkpoint. `send` prints one, ``{"holds": …,
"bytes": total size, "is_sent": …}``, then the folder as a tar archive with an end mark. `receive` prints a line
``{"ready": true}``, reads such an archive, and prints ``{"failed": ""}`` or the reason. The received folder replaces
the existing one atomically. Links are not followed.
"""

import json
import os
import stat
import sys
import tarfile
import tempfile
import time
from contextlib import closing, suppress
from typing import Any, BinaryIO, Dict, Iterator, List, Tuple

from trial_runner import protocol
from trial_runner.wire import foreign_files, removal

#: Seconds without data after which leftovers of a killed process are removed.
_LEFT_S = 3600.0
#: The last member: without it, an archive truncated between members would look complete.
_ALL = ".nni-all-sent"
_KINDS = (tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE)


def holds(folder: str) -> bool:
    """Whether there is a checkpoint: the folder has content and is not a partial copy. Raises OSError."""
    names = os.listdir(folder) if os.path.isdir(folder) and not os.path.islink(folder) else []
    return bool(names) and protocol.CHECKPOINT_COPYING not in names


def send(folder: str, most_bytes: int, sink: BinaryIO) -> None:
    """Writes the answer and the archive; only the answer without a checkpoint, or more than `most_bytes`.

    Raises OSError, also if a file is being written meanwhile.
    """
    has_one = holds(folder)
    found = list(_found(folder)) if has_one else []
    size = sum(status.st_size for _, status in found if stat.S_ISREG(status.st_mode))
    is_sent = has_one and size <= most_bytes
    _answer(sink, {"holds": has_one, "bytes": size, "is_sent": is_sent})
    if not is_sent:
        return
    with foreign_files.OpenFolder(folder) as opened, tarfile.open(fileobj=sink, mode="w|") as archive:
        for name, status in found:
            _add(archive, opened, name, status)
        archive.addfile(tarfile.TarInfo(_ALL))
    sink.flush()


def _found(folder: str) -> Iterator[Tuple[str, os.stat_result]]:
    """Folders, files and links below a folder, by name; a folder comes before its content."""
    for parent, folders, files in os.walk(folder):
        for name in sorted(folders) + sorted(files):
            path = os.path.join(parent, name)
            yield os.path.relpath(path, folder), os.lstat(path)


def _add(archive: tarfile.TarFile, folder: foreign_files.OpenFolder, name: str, status: os.stat_result) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(os.path.join(folder.path, name))
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        member.size = status.st_size
        with open(foreign_files.open_file(folder, name), "rb") as file:
            archive.addfile(member, file)


def receive(folder: str, source: BinaryIO) -> str:
    """Replaces a folder by the content of an archive; returns the reason of a failure, empty: success.

    Several may run at a time: each has its own draft, and each result is complete.
    """
    arriving, draft = folder + protocol.CHECKPOINT_ARRIVING, ""
    try:
        for needed in (os.path.dirname(folder), arriving):
            os.makedirs(needed, mode=0o700, exist_ok=True)
        _clear(arriving)
        draft = tempfile.mkdtemp(dir=arriving)
        _unpack(draft, source)
        stays = removal.remove(folder)
        if not stays:
            os.rename(draft, folder)
        return "; ".join(stays)
    except (OSError, ValueError, tarfile.TarError) as error:
        return "{}: {}".format(folder, getattr(error, "strerror", None) or error)
    finally:
        if draft:
            removal.remove(draft)
        with suppress(OSError):  # another one arrives
            os.rmdir(arriving)


def _clear(arriving: str) -> None:
    """Removes drafts that are too old."""
    for name in os.listdir(arriving):
        path = os.path.join(arriving, name)
        with suppress(FileNotFoundError):
            if time.time() - os.lstat(path).st_mtime > _LEFT_S:
                removal.remove(path)


def _unpack(draft: str, source: BinaryIO) -> None:
    links: List[tarfile.TarInfo] = []
    with foreign_files.OpenFolder(draft) as opened, closing(tarfile.open(fileobj=source, mode="r|")) as archive:
        for member in archive:
            if member.name == _ALL:
                break
            if member.type not in _KINDS:
                raise ValueError("the archive contains something other than files, folders and links")
            if member.issym():
                links.append(member)
            else:
                _take(archive, member, opened)
        else:
            raise ValueError("the archive is incomplete")
    for member in links:  # last, so that no name leads through one
        if ".." in member.name.split("/"):
            raise ValueError("a name leads out of the archive")
        os.symlink(member.linkname, os.path.join(draft, member.name.lstrip("/")))


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: foreign_files.OpenFolder) -> None:
    if member.isdir():
        foreign_files.make_folder(folder, member.name)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(foreign_files.open_file(folder, member.name, flags, member.mode & 0o777 | 0o600), "wb") as file:
        content = archive.extractfile(member)
        assert content is not None, "it is a regular file"
        for piece in iter(lambda: content.read(1 << 16), b""):
            file.write(piece)


def main(verb: str, folder: str, most_bytes: int) -> None:
    """Entry point for the manager: `send` on one machine, `look` or `receive` on the other."""
    sink = sys.stdout.buffer
    if verb == "look":
        _answer(sink, {"holds": holds(folder)})
    elif verb == "send":
        send(folder, most_bytes, sink)
    else:
        _answer(sink, {"ready": True})
        _answer(sink, {"failed": receive(folder, sys.stdin.buffer)})


def _answer(sink: BinaryIO, answer: Dict[str, Any]) -> None:
    sink.write(json.dumps(answer).encode() + b"\n")
    sink.flush()
