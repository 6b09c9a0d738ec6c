"""httpx reads the certificates of all authorities for each client, 30 ms of what a call takes: a process of the tests
reads them once, and those of a file or folder that the environment names once for each. Nothing that listens here has a
certificate of the authorities that all know.
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
    """For this process, from now on."""
    default.create_ssl_context = _context  # type: ignore[attr-defined]


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None:
        named = tuple(os.environ.get(name, "") if trust_env else "" for name in _NAMED_BY)
        return _of_authorities(*((path, _changed_ns(path)) for path in named))
    return _read(verify=verify, cert=cert, trust_env=trust_env)  # their order hangs on the release


def _changed_ns(path: str) -> int:
    """When a file was written, or a folder got a file; 0: there is none."""
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


@cache
def _of_authorities(*named: tuple[str, int]) -> ssl.SSLContext:
    """`named`: paths by the environment, where there are any, and when each was changed."""
    return _read(trust_env=any(path for path, _ in named))
