"""Tokens of attempts: each may read and write its attempt only. Derived from a secret, not stored."""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from pathlib import Path

#: Most tokens in the cache.
_MOST_KNOWN = 4096


class RunnerTokens:
    """Tokens of all jobs of a data directory. The secret behind them never leaves this class."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        #: Cache: job name → token.
        self._known: dict[str, str] = {}
        #: Public id of this manager, the prefix of every token.
        self.manager = _text(hmac.digest(secret, b"the manager's name", "sha256")[:9])

    @classmethod
    def of(cls, data_directory: Path) -> RunnerTokens:
        """The tokens of a data directory; creates its secret file on first use. Raises OSError."""
        path = data_directory / "runner-secret"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return cls(path.read_bytes())
        try:
            os.write(file, secret := secrets.token_bytes(32))
        finally:
            os.close(file)
        return cls(secret)

    def token(self, job_name: str) -> str:
        """The token of the job's runner."""
        if job_name not in self._known:
            while len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            digest = hmac.digest(self._secret, job_name.encode(), "sha256")
            self._known[job_name] = f"{self.manager}.{_text(digest[:24])}"
        return self._known[job_name]

    def is_token(self, job_name: str, shown: str) -> bool:
        """Whether `shown` is the job's token; compared in constant time."""
        return hmac.compare_digest(self.token(job_name).encode(), shown.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
