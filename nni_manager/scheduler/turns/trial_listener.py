"""How trial runners reach the manager: the trial listener as experiments see it, a token for each job, heartbeats.

A token is derived from a secret and not stored; heartbeats are in memory only.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from nni_manager.domain.attempt import Attempt
from nni_manager.scheduler.turns.runner_secret import runner_secret
from trial_runner import protocol

#: Maximum number of tokens in the cache.
_MOST_KNOWN = 4096


class RunnerTokens:
    """Tokens of all jobs of a data directory. The secret behind them never leaves this class."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        #: The token of a job's runner, by the job's name.
        self.token: Callable[[str], str] = lru_cache(maxsize=_MOST_KNOWN)(self._derived)
        #: Public id of this manager, the prefix of every token.
        self.manager = _text(hmac.digest(secret, b"the manager's name", "sha256")[:9])

    @classmethod
    def of(cls, data_directory: Path) -> RunnerTokens:
        """The tokens of a data directory; creates its secret on first use. Raises OSError."""
        return cls(runner_secret(data_directory))

    def _derived(self, job_name: str) -> str:
        return f"{self.manager}.{_text(hmac.digest(self._secret, job_name.encode(), 'sha256')[:24])}"

    def is_token(self, job_name: str, shown: str) -> bool:
        """Whether `shown` is the job's token; compared in constant time."""
        return hmac.compare_digest(self.token(job_name).encode(), shown.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


class TrialListener(Protocol):
    """Built by `app`, which owns the sockets."""

    tokens: RunnerTokens
    #: Certificate authority for runners, PEM, in addition to those of their machine; empty: none.
    authority: str

    async def open(self, experiment_id: str) -> None:
        """Opens the listener. Idempotent. Raises PlatformUnavailable, with `refused`, while it cannot be opened."""

    async def close(self, experiment_id: str) -> None:
        """Called when the experiment no longer needs it; the last one closes it. Idempotent."""

    def url(self, manager_ip: str) -> str:
        """The address for runners, ``http://host:port`` or ``https``. `manager_ip`: from the config, or empty."""


def runner_environment(
    listener: TrialListener, attempt: Attempt, *, manager_ip: str, experiment_id: str
) -> dict[str, str]:
    """The environment of an attempt's runner: address, token and authority. Never log it."""
    base = f"{listener.url(manager_ip)}/trial/v1/{experiment_id}/{attempt.trial_id}/{attempt.number}"
    trusted = {protocol.ENV_MANAGER_CA: protocol.on_one_line(listener.authority)} if listener.authority else {}
    return {protocol.ENV_MANAGER_URL: base, protocol.ENV_TOKEN: listener.tokens.token(attempt.job_name), **trusted}


#: Seconds of silence after which the next heartbeat of a runner wakes the loop.
_LONG_S = 20.0
#: Seconds between two turns above which the process was stalled; its own silence is then not counted.
_STALL_S = 60.0


class Heartbeats:
    """The last heartbeat of each runner. `news`: called when a runner reports after a long silence."""

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self._since_s: float | None = None
        self._looked_s = 0.0
        self._heard_s: dict[str, float] = {}

    def begin(self) -> None:
        """Starts counting, as the trial listener is open."""
        self._since_s = self._looked_s = asyncio.get_running_loop().time()

    def hear(self, job_name: str) -> None:
        """Notes a post of the job's runner."""
        now_s = asyncio.get_running_loop().time()
        last_s = self._heard_s.get(job_name, self._since_s)
        self._heard_s[job_name] = now_s
        if last_s is None or now_s - last_s > _LONG_S:
            self._news()

    def drop(self, job_name: str) -> None:
        """Removes a job."""
        self._heard_s.pop(job_name, None)

    def silence_s(self, job_name: str) -> float | None:
        """Seconds since the last heartbeat of a job's runner; None: not listening yet."""
        if self._since_s is None:
            return None
        return asyncio.get_running_loop().time() - self._heard_s.get(job_name, self._since_s)

    def silence_ms(self) -> tuple[int | None, Mapping[str, int]]:
        """(milliseconds of listening; None: not yet), and job → milliseconds since its last heartbeat."""
        if self._since_s is None:
            return None, {}
        now_s = asyncio.get_running_loop().time()
        if (gap_s := now_s - self._looked_s) > _STALL_S:
            self._since_s += gap_s
            self._heard_s = {name: heard_s + gap_s for name, heard_s in self._heard_s.items()}
        self._looked_s = now_s
        heard = {name: round(1000 * (now_s - heard_s)) for name, heard_s in self._heard_s.items()}
        return round(1000 * (now_s - self._since_s)), heard
