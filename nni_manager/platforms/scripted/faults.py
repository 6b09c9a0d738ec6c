"""What befalls the scripted cluster itself: an outage, refused credentials. By the clock, whoever is watching."""

from __future__ import annotations

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platforms.scripted.config import ScriptedConfig, Span
from nni_manager.platforms.scripted.jobs import Jobs


class Faults:
    def __init__(self, config: ScriptedConfig, jobs: Jobs, clock: Clock) -> None:
        self._config = config
        self._jobs = jobs
        self._clock = clock

    async def check(self) -> None:
        """Comes before everything that a cluster is asked. Raises PlatformUnavailable or BadCredentials."""
        if self._config.outage is None and self._config.wrong_credentials is None:
            return
        since_s = (self._clock() - await self._jobs.begun_ms()) / 1000
        if (until := _until(self._config.outage, since_s)) is not None:
            raise PlatformUnavailable(f"the scripted cluster is unreachable {until} (outage)", refused=True)
        if (until := _until(self._config.wrong_credentials, since_s)) is not None:
            raise BadCredentials(
                f"the scripted cluster refuses our credentials {until} (wrongCredentials); resume after that"
            )


def _until(span: Span | None, since_s: float) -> str | None:
    """In words that stay true; None: not now."""
    if span is None or since_s < span.after:
        return None
    if span.for_ is None:
        return "for ever"
    end_s = span.after + span.for_
    return f"until {end_s:g} s after the experiment began" if since_s < end_s else None
