"""Code on storage where other users may write: it is known by its SHA-256, and unpacked from a copy that has it.

The copy is private to the process that unpacks: a file that was checked and then opened again might be another one.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from trial_runner.wire import foreign_files

#: Run by the Python of a trial's machine, which has nothing of ours: ARCHIVE FOLDER SHA256.
UNPACK = """\
import hashlib, sys, tarfile, tempfile
archive, folder, wanted = sys.argv[1:]
copy, digest = tempfile.TemporaryFile(), hashlib.sha256()
with open(archive, "rb") as file:
    for piece in iter(lambda: file.read(1048576), b""):
        copy.write(piece)
        digest.update(piece)
if digest.hexdigest() != wanted:
    sys.exit(archive + " is not what the manager put there: its SHA-256 is another one")
copy.seek(0)
tarfile.open(fileobj=copy).extractall(folder)
"""


def unpack_command(python: str, archive: str, folder: str, sha256: str) -> str:
    """Shell text that unpacks `archive` into `folder`, or fails where it has another SHA-256."""
    words = [python, "-I", "-W", "ignore", "-c", UNPACK, archive, folder, sha256]
    return " ".join(map(shlex.quote, words))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of ours, in hex. Blocks. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has(path: Path, sha256: str) -> bool:
    """Whether a regular file with that SHA-256 is there. Blocks."""
    try:
        with open(foreign_files.open_file(str(path.parent), path.name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
