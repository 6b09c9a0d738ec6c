"""The certificates for checking services: read once for all accounts, as that takes 40 ms and a megabyte."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from functools import lru_cache

import httpx


def trusted() -> ssl.SSLContext:
    """The authorities in `SSL_CERT_FILE` or `SSL_CERT_DIR`, or else the public ones; do not change the result.

    Raises OSError if the file cannot be read.
    """
    named = os.environ.get("SSL_CERT_FILE") or "", os.environ.get("SSL_CERT_DIR") or ""
    return _read(named, tuple(_changed_ns(path) for path in named))


@lru_cache(maxsize=1)
def _read(named: tuple[str, str], changed_ns: tuple[int, int]) -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _changed_ns(path: str) -> int:
    """Time of its last change; 0: it does not exist."""
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0
