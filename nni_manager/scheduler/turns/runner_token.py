"""Tokens of attempts: each may read and write its attempt only. Derived, so that nothing needs to be stored."""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from pathlib import Path

#: Tokens that are kept.
_MOST_KNOWN = 4096


class RunnerTokens:
    """Tokens of all jobs of a data directory. The secret behind them never leaves this class."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        #: Tokens that were made last: each is compared with every post of its job.
        self._known: dict[str, str] = {}
        #: Names this manager to runners: every token begins with it. It says nothing of the secret.
        self.manager = _text(hmac.digest(secret, b"the manager's name", "sha256")[:9])

    @classmethod
    def of(cls, data_directory: Path) -> RunnerTokens:
        """The tokens of a data directory, whose secret is made on first use and outlives the daemon. Raises OSError."""
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
        """The token that the runner of this job shows."""
        if job_name not in self._known:
            while len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            digest = hmac.digest(self._secret, job_name.encode(), "sha256")
            self._known[job_name] = f"{self.manager}.{_text(digest[:24])}"
        return self._known[job_name]

    def is_token(self, job_name: str, shown: str) -> bool:
        """Whether a runner has shown the token of this job; compared in constant time."""
        return hmac.compare_digest(self.token(job_name).encode(), shown.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
