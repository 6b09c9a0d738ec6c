"""Files that are there whole or not at all."""

import os


def write_file(path: str, data: bytes, mode: int = 0o600) -> None:
    """A temporary name first, so that nobody reads half of it. Raises OSError, leaving nothing."""
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def write_all(descriptor: int, data: bytes) -> None:
    """Raises OSError; part of it may be written then."""
    while data:
        data = data[os.write(descriptor, data) :]
