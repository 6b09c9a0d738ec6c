"""Unpacks the code of an experiment: regular files, folders and links that stay inside; nothing else, nowhere else."""

import os
import stat
import tarfile
from contextlib import ExitStack
from typing import IO, Callable, List, Optional

_COPY_BYTES = 256 * 1024

Tell = Callable[[int], None]


class BadArchive(Exception):
    """The text names the entry that is at fault."""


class DamagedArchive(BadArchive):
    """An error: the archive is not as it was packed; another copy may be whole."""


def unpack(path: str, folder: str, tell: Tell = lambda done: None, sha256: str = "") -> None:
    """Puts a tar.gz into the folder, replacing files of the same name. Raises BadArchive, and OSError of the disk.

    `sha256`: in hex; an archive with another one is refused before any of it is unpacked, as other users may write
    where it lies. What is unpacked then is the copy that was checked. `tell`: called now and then with the bytes,
    unpacked, that are done.
    """
    with ExitStack() as held:
        file = held.enter_context(open(path, "rb"))
        _unpack_file(held.enter_context(_checked_copy(file, sha256)) if sha256 else file, folder, tell)


def _checked_copy(file: IO[bytes], sha256: str) -> IO[bytes]:
    import hashlib  # both bring much with them and are seldom needed
    import tempfile

    copy, digest = tempfile.TemporaryFile(), hashlib.sha256()
    try:
        for piece in iter(lambda: file.read(_COPY_BYTES), b""):
            digest.update(piece)
            copy.write(piece)
        if digest.hexdigest() != sha256:
            raise DamagedArchive(
                "The code archive {} is not what the manager put there: its SHA-256 is another one.".format(file.name)
            )
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _unpack_file(file: IO[bytes], folder: str, tell: Tell) -> None:
    try:
        import zlib
    except ImportError as error:
        raise BadArchive(
            "This Python cannot unpack code (it has no zlib): use an image whose Python has it."
        ) from error
    os.makedirs(folder, exist_ok=True)
    root = os.path.realpath(folder)
    links: List[str] = []
    try:
        # as a stream, one that is cut short would pass for whole
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            for entry in archive:
                _unpack(archive, entry, root, links, tell)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk; those of the archive have no number
        raise DamagedArchive("The code archive is damaged ({}): start the trial again.".format(error)) from error
    _check_links(root, links)


def _unpack(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, root: str, links: List[str], tell: Callable[[int], None]
) -> None:
    path = _place(entry.name, root)
    if entry.isdir():
        _make_folder(path)
        return
    if path == root:
        raise _refusal(entry.name, "takes the place of the folder itself")
    _make_folder(os.path.dirname(path))
    _remove(path)
    if entry.isreg():
        _write(archive.extractfile(entry), path, entry.mode, lambda done: tell(entry.offset_data + done))
    elif entry.issym():
        os.symlink(entry.linkname, path)
        links.append(path)
    elif entry.islnk():
        os.link(_linked(entry, root), path)
    else:
        raise _refusal(entry.name, "is neither a file nor a folder nor a link")


def _place(name: str, root: str) -> str:
    """The path of an entry. No part of the way there may be a link: it could lead elsewhere. Raises BadArchive."""
    if os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise _refusal(name, "leads out of the code folder")
    path = os.path.normpath(os.path.join(root, name))
    if path != root and os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
        raise _refusal(name, "lies behind a link")
    return path


def _linked(entry: tarfile.TarInfo, root: str) -> str:
    path = _place(entry.linkname, root)
    if not os.path.lexists(path) or not stat.S_ISREG(os.lstat(path).st_mode):
        raise _refusal(entry.name, "is a link to what is no file of the archive")
    return path


def _make_folder(path: str) -> None:
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    os.makedirs(path, exist_ok=True)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        raise BadArchive("The code archive has a file where {} is a folder: pack it anew.".format(path))
    if os.path.lexists(path):
        os.unlink(path)


def _write(source: Optional[IO[bytes]], path: str, mode: int, tell: Callable[[int], None]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    # Permission bits alone: no set-user-id, and always readable by its owner.
    with open(os.open(path, flags, (mode & 0o777) | 0o600), "wb") as file:
        data = source.read(_COPY_BYTES) if source is not None else b""
        while source is not None and data:
            file.write(data)
            tell(source.tell())
            data = source.read(_COPY_BYTES)


def _check_links(root: str, links: List[str]) -> None:
    """Checks links when all is in place, since a later entry may change where an earlier link leads."""
    for path in links:
        real = os.path.realpath(path)
        if os.path.lexists(path) and real != root and not real.startswith(root + os.sep):
            os.unlink(path)
            raise _refusal(os.path.relpath(path, root), "is a link that leads out of the code folder")


def _refusal(name: str, reason: str) -> BadArchive:
    return BadArchive("The code archive is refused: its entry {!r} {}. Correct codeDir.".format(name, reason))
