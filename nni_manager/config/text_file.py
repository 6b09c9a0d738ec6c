"""Files that users write: read whole, as UTF-8, with a refusal that names file and line."""

from __future__ import annotations

import os

from nni_manager.domain.errors import ConfigInvalid, Problem

#: No config or search space is larger.
MAX_BYTES = 8 * 1024 * 1024


def read_text(path: str) -> str:
    """The file's text without a byte order mark. Raises ConfigInvalid."""
    data = _read_bytes(path)
    if len(data) > MAX_BYTES:
        raise _refused(path, f"larger than {MAX_BYTES // 2**20} MiB; this is hardly the file you mean")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused(path, "not UTF-8 text; save the file in that encoding", line) from None


def _read_bytes(path: str) -> bytes:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise _refused(path, "not a file; name the file itself")
        with open(path, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}; check the name and its permissions") from None


def _refused(path: str, message: str, line: int = 0) -> ConfigInvalid:
    return ConfigInvalid([Problem(message=message, file=path, line=line)])
