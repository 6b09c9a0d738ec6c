"""Read the certificates of public authorities once per test process.

httpx reads them for each client, which takes 30 ms. Certificates from a file or folder in the environment are read once
per file. Test servers never have certificates of public authorities.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from functools import cache
from typing import Any

from httpx._transports import default

_read = default.create_ssl_context  # type: ignore[attr-defined]
_NAMED_BY = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def share() -> None:
    """Patch httpx in this process."""
    default.create_ssl_context = _context  # type: ignore[attr-defined]


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None:
        named = tuple(os.environ.get(name, "") if trust_env else "" for name in _NAMED_BY)
        return _of_authorities(*((path, _changed_ns(path)) for path in named))
    return _read(verify=verify, cert=cert, trust_env=trust_env)  # their order depends on the release


def _changed_ns(path: str) -> int:
    """Modification time of a file or folder; 0: it does not exist."""
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


@cache
def _of_authorities(*named: tuple[str, int]) -> ssl.SSLContext:
    """`named`: paths from the environment, and the time of their last change."""
    return _read(trust_env=any(path for path, _ in named))
