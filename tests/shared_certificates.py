"""httpx reads the certificates of all authorities for each client, 30 ms of what a call takes: a process of the tests
reads them once. Nothing that listens here has a certificate of theirs.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

from httpx._transports import default

_read = default.create_ssl_context  # type: ignore[attr-defined]


def share() -> None:
    """For this process, from now on."""
    default.create_ssl_context = _context  # type: ignore[attr-defined]


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    has_own = trust_env and (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"))
    if verify is True and cert is None and not has_own:
        return _of_authorities()
    return _read(verify, cert, trust_env)


@cache
def _of_authorities() -> ssl.SSLContext:
    return _read(trust_env=False)
