"""The secret behind the tokens of all runners: a file of the data directory that only this user can read.

With a leaked secret, others could report for every job: a file that is empty, short or was readable is replaced.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from nni_manager.platform_kit.owner import is_ours
from trial_runner.wire.foreign_files import write_all

log = logging.getLogger(__name__)

FILE = "runner-secret"
_BYTES = 32


def runner_secret(data_directory: Path) -> bytes:
    """The stored secret, or a new one if it is missing or not trusted. Call it as the owner of the data directory,
    whose lock excludes others. Raises OSError."""
    path = data_directory / FILE
    try:
        found = path.lstat()
    except FileNotFoundError:
        return _made(path)
    if stat.S_ISREG(found.st_mode) and is_ours(data_directory, found.st_uid) and _is_private(path):
        stored = path.read_bytes()
        if len(stored) == _BYTES:
            return stored
    log.warning("%s was damaged or readable by others and is replaced: runners that started earlier are rejected", path)
    return _made(path)


def _is_private(path: Path) -> bool:
    """Whether only the owner and its groups could read the file. Its mode is set to 0600 if it is wider: a Kubernetes
    volume gives a group access to all files at each start, but the folder excluded that group."""
    before = path.stat().st_mode
    if before & 0o077:
        with suppress(OSError):
            path.chmod(0o600)
    return not before & 0o007 or bool(path.stat().st_mode & 0o007)  # unchanged on a file system without modes


def _made(path: Path) -> bytes:
    """Stores a new secret atomically; a killed process leaves a draft behind."""
    secret, draft = secrets.token_bytes(_BYTES), path.with_name(f"{FILE}.draft")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(file, secret)
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(path)
    return secret
