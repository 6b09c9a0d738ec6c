"""The trial listener's interface for experiments: open, close, address, and a token for each job."""

from __future__ import annotations

from typing import Protocol

from nni_manager.domain.attempt import Attempt
from nni_manager.scheduler.turns.runner_token import RunnerTokens
from trial_runner import protocol


class TrialListener(Protocol):
    """Built by `app`, which owns the sockets."""

    tokens: RunnerTokens
    #: Certificate authority for runners, PEM, beside those of their machine; empty: none.
    authority: str

    async def open(self, experiment_id: str) -> None:
        """Opens the listener. Idempotent. Raises PlatformUnavailable, with `refused`, while it cannot be opened."""

    async def close(self, experiment_id: str) -> None:
        """Called when the experiment no longer needs it; the last one closes it. Idempotent."""

    def url(self, manager_ip: str) -> str:
        """The address for runners, ``http://host:port`` or ``https``. `manager_ip`: what the config says, or empty."""


def runner_environment(
    listener: TrialListener, attempt: Attempt, *, manager_ip: str, experiment_id: str
) -> dict[str, str]:
    """The environment of an attempt's runner: address, token and authority. Never log it."""
    base = f"{listener.url(manager_ip)}/trial/v1/{experiment_id}/{attempt.trial_id}/{attempt.number}"
    trusted = {protocol.ENV_MANAGER_CA: protocol.on_one_line(listener.authority)} if listener.authority else {}
    return {protocol.ENV_MANAGER_URL: base, protocol.ENV_TOKEN: listener.tokens.token(attempt.job_name), **trusted}
