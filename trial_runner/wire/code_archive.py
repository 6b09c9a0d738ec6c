"""Unpacks a code archive: nothing is written outside the folder, and the size is limited.

An archive that differs from what the manager packs is refused, as another user may have made or changed it. The folder
of each member must precede it as a folder, so nothing is written through a symbolic link.
"""

import errno
import os
from contextlib import ExitStack
from typing import IO, Callable, List, Optional, Set

from trial_runner.wire.tar_reader import BadTar, Kind, Member, TarReader

#: Maximum number of files and symbolic links.
MOST_FILES = 2000
#: Maximum bytes of all files, before compression.
MOST_BYTES = 300 * 1024**2
MOST_FOLDERS = 10 * MOST_FILES
#: Maximum depth of nested folders.
MOST_LEVELS = 100
#: Maximum bytes that headers, padding and the end of a tar file may add to its files.
_OVERHEAD_BYTES = 64 * 1024**2
_CHUNK_BYTES = 256 * 1024
#: The disk's errors for invalid file names.
_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP)

#: Called with the number of unpacked bytes.
Tell = Callable[[int], None]


class BadArchive(Exception):
    """The archive is refused. `reason`: continues "the code archive"."""

    def __init__(self, reason: str, sentence: str = "The code archive {}. Correct codeDir.") -> None:
        super().__init__(sentence.format(reason))
        self.reason = reason


class DamagedArchive(BadArchive):
    """The archive is damaged; another copy may be intact. `reason`: a clause about the archive."""

    def __init__(self, reason: str, sentence: str = "The code archive is damaged ({}): start the trial again.") -> None:
        super().__init__(reason, sentence)


def unpack(path: str, folder: str, tell: Tell = lambda done: None, sha256: str = "") -> None:
    """Unpacks a tar.gz into `folder`, replacing files of the same name. Blocks. Raises BadArchive; OSError of the disk.

    `sha256`: in hex; an archive with another hash is refused before unpacking, as other users may have write access to
    it. The copy that was checked is unpacked.
    """
    with ExitStack() as held:
        file = held.enter_context(open(path, "rb"))
        inflated = _Inflated(held.enter_context(_checked_copy(file, sha256)) if sha256 else file)
        os.makedirs(folder, exist_ok=True)
        try:
            _Unpacker(folder, lambda: tell(inflated.done)).add_all(inflated)
        except (BadTar, inflated.error, EOFError) as error:
            raise DamagedArchive(str(error)) from error
        except OSError as error:
            if error.errno not in _BAD_NAMES:
                raise
            raise BadArchive("contains an invalid file name ({})".format(error.strerror)) from error


def _checked_copy(file: IO[bytes], sha256: str) -> IO[bytes]:
    import hashlib  # both bring much with them and are seldom needed
    import tempfile

    copy, digest = tempfile.TemporaryFile(), hashlib.sha256()
    try:
        for piece in iter(lambda: file.read(_CHUNK_BYTES), b""):
            digest.update(piece)
            copy.write(piece)
        if digest.hexdigest() != sha256:
            sentence = "The code archive {} is not the one that the manager wrote: its SHA-256 differs."
            raise DamagedArchive(str(file.name), sentence)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


class _Inflated:
    """The decompressed bytes of a gzip file, up to the maximum size of our archives."""

    def __init__(self, file: IO[bytes]) -> None:
        """Raises BadArchive where this Python was built without zlib."""
        try:
            import zlib
        except ImportError as error:
            sentence = "This Python cannot unpack code (it has no zlib): use an image whose Python has it."
            raise BadArchive("cannot be unpacked", sentence) from error
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)  # 31: gzip, with its checksum
        self.error = zlib.error
        #: Number of bytes read.
        self.done = 0

    def read(self, size: int) -> bytes:
        """The next `size` decompressed bytes, or all that are left. Raises EOFError for a truncated file."""
        parts: List[bytes] = []
        while size > 0 and not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._file.read(_CHUNK_BYTES)
            if not data:
                raise EOFError("it ends too early")
            part = self._inflate.decompress(data, size)
            self.done += len(part)
            if self.done > MOST_BYTES + _OVERHEAD_BYTES:
                raise BadArchive(_too_large())
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


class _Unpacker:
    def __init__(self, folder: str, tell: Callable[[], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._names: Set[str] = set()
        self._folders = {""}
        self._links: List[str] = []
        self._bytes = 0

    def add_all(self, inflated: _Inflated) -> None:
        tar = TarReader(inflated.read)
        for member in tar.members():
            self._add(tar, member)
        while inflated.read(_CHUNK_BYTES):
            pass  # the checksum is at the end
        self._check_links()

    def _add(self, tar: TarReader, member: Member) -> None:
        path = self._place(member)
        if member.kind is Kind.FOLDER:
            return self._add_folder(member.name, path)
        self._count(member)
        if os.path.isdir(path) and not os.path.islink(path):
            raise _refused(member.name, "is a file, but a folder of that name exists")
        if os.path.lexists(path):
            os.unlink(path)
        if member.kind is Kind.FILE:
            self._write(tar, member, path)
        elif member.kind is Kind.LINK and member.target and "\0" not in member.target:
            os.symlink(member.target, path)
            self._links.append(path)
        else:
            raise _refused(member.name, "is neither file, folder nor symbolic link")

    def _place(self, member: Member) -> str:
        """The path of a member. Raises BadArchive if its folder is missing, it is too deep, or repeated."""
        name = member.name
        parent, _, last = name.rpartition("/")
        if last in ("", ".", "..") or name[0] == "/" or "\0" in name or parent not in self._folders:
            raise _refused(name, "is not in a folder of the archive")
        if name.count("/") >= MOST_LEVELS:
            raise BadArchive("has folders nested more than {} deep; nest them less".format(MOST_LEVELS))
        if name in self._names:
            raise _refused(name, "is in it twice")
        self._names.add(name)
        return os.path.join(self._folder, name)

    def _add_folder(self, name: str, path: str) -> None:
        if len(self._folders) > MOST_FOLDERS:
            raise BadArchive("contains more than {} folders; reduce them".format(MOST_FOLDERS))
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        if not os.path.isdir(path):
            os.mkdir(path)
        self._folders.add(name)

    def _count(self, member: Member) -> None:
        self._bytes += member.size
        if len(self._names) - len(self._folders) + 1 > MOST_FILES:
            raise BadArchive("contains more than {} files; list some in .nniignore".format(MOST_FILES))
        if self._bytes > MOST_BYTES:
            raise BadArchive(_too_large())

    def _write(self, tar: TarReader, member: Member, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o755 if member.is_executable else 0o644), "wb") as file:
            for part in tar.content():
                file.write(part)
                self._tell()

    def _check_links(self) -> None:
        """Refuses links that lead out of the archive. Called at the end, as later members change where links lead."""
        root = os.path.realpath(self._folder)
        for path in self._links:
            name, found = os.path.relpath(path, self._folder), _real(path)
            if found is None:
                raise _refused(name, "is a link that leads through too many others")
            if os.path.isabs(os.readlink(path)) or os.path.commonpath((root, found)) != root:
                raise _refused(name, "is a link that leads out of the archive")


def _real(path: str) -> Optional[str]:
    """The path that a link leads to; None if it leads through more links than the kernel follows."""
    try:
        os.stat(path)  # the kernel rejects a chain of thousands at once; in Python it takes minutes
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
    return os.path.realpath(path)


def _refused(name: str, what: str) -> BadArchive:
    return BadArchive("was not packed by this manager: {!r} {}".format(name, what))


def _too_large() -> str:
    return "contains more than {} MB; list what trials do not need in .nniignore".format(MOST_BYTES // 2**20)
