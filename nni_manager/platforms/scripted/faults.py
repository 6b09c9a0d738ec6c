"""What befalls the scripted cluster itself: an outage, refused credentials. By the clock, whoever is watching."""

from __future__ import annotations

import hashlib

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platforms.scripted.config import ScriptedConfig, Span
from nni_manager.platforms.scripted.jobs import Jobs


class Faults:
    def __init__(self, config: ScriptedConfig, jobs: Jobs, clock: Clock) -> None:
        self.config = config
        self._jobs = jobs
        self._clock = clock

    async def check(self) -> None:
        """Comes before everything that a cluster is asked. Raises PlatformUnavailable or BadCredentials."""
        self._check_token()
        if self.config.outage is None and self.config.wrong_credentials is None:
            return
        since_s = (self._clock() - await self._jobs.begun_ms()) / 1000
        if (until := _until(self.config.outage, since_s)) is not None:
            raise PlatformUnavailable(f"the scripted cluster is unreachable {until} (outage)", refused=True)
        if (until := _until(self.config.wrong_credentials, since_s)) is not None:
            raise BadCredentials(
                f"the scripted cluster refuses our credentials {until} (wrongCredentials); resume after that"
            )

    def _check_token(self) -> None:
        accepted, token = self.config.accepted_token, self.config.token or ""
        if accepted is not None and hashlib.sha256(token.encode()).hexdigest() != accepted:
            raise BadCredentials("the scripted cluster refuses our token (acceptedToken); give another one")


def _until(span: Span | None, since_s: float) -> str | None:
    """In words that stay true; None: not now."""
    if span is None or since_s < span.after:
        return None
    if span.for_ is None:
        return "for ever"
    end_s = span.after + span.for_
    return f"until {end_s:g} s after the experiment began" if since_s < end_s else None
