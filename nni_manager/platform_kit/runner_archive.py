"""The trial runner as one file, which any Python 3.7 or newer runs: what clusters' containers are given."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from trial_runner import protocol

_PACKAGE = Path(protocol.__file__).parent
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import sys

from trial_runner import python_version

python_version.check()

from trial_runner.__main__ import main

sys.exit(main())
"""
#: The earliest that the format knows. The same sources make the same bytes, whenever and wherever.
_DATE = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16


@functools.cache
def runner_archive() -> bytes:
    """The archive of the whole package, uncompressed.

    Compressed bytes differ between versions of zlib, which not every Python has.
    """
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(_PACKAGE.rglob("*.py")):
            _add(archive, f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}", path.read_bytes())
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.create_system = 3  # Unix, wherever it is made
    entry.external_attr = _REGULAR_FILE
    archive.writestr(entry, data)
