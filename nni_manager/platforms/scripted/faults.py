"""Faults of the scripted cluster, such as outages, refused credentials and no room, which depend on the clock only.

Also the account that experiments share: one login and one rate limit, and the cluster's log of both.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.config import Account, ScriptedConfig, Span
from nni_manager.platforms.scripted.jobs import Jobs
from nni_manager.web_services.pacing import Pacing

#: Seconds that represent an unlimited span.
_FOR_EVER_S = 1e6


class Faults:
    def __init__(self, config: ScriptedConfig, jobs: Jobs, clock: Clock) -> None:
        self.config = config
        self._jobs = jobs
        self._clock = clock
        self._begun_ms = 0
        #: The end of the retry-after span, in milliseconds since the epoch.
        self._alone_until_ms = 0

    async def enter(self) -> None:
        """Refuses connections while the script says so. Raises PlatformUnavailable, OSError."""
        if (until := _until(self.config.enter_outage, await self._since_s())) is not None:
            raise PlatformUnavailable(f"the scripted cluster refuses connections {until} (enterOutage)")

    async def check(self, verb: str) -> None:
        """Refuses calls while the script says so; every verb calls it first.

        Raises PlatformUnavailable or BadCredentials.
        """
        config = self.config
        if config.wrong_credentials is None and not self._is_accepted():
            raise BadCredentials("the scripted cluster refuses the token (acceptedToken); set another one")
        if not (config.outage or config.wrong_credentials or config.retry_after or config.hang):
            return
        since_s = await self._since_s()
        await self._hang(verb, since_s)
        if (until := _until(config.outage, since_s)) is not None:
            raise PlatformUnavailable(f"the scripted cluster is unreachable {until} (outage)", refused=True)
        until = _until(config.wrong_credentials, since_s)
        if until is not None and not (config.accepted_token and self._is_accepted()):
            raise BadCredentials(
                f"the scripted cluster refuses the credentials {until} (wrongCredentials); set others, or resume later"
            )
        self._leave_alone(since_s)

    def no_room(self) -> Wait | None:
        """The reason why the cluster takes no jobs now; None: it takes jobs."""
        span = self.config.no_room
        if span is None or _until(span, (self._clock() - self._begun_ms) / 1000) is None:
            return None
        return Wait(code=WaitCode.QUOTA, sentence=span.sentence)

    def unreachable(self) -> Mapping[str, str]:
        """The machines that are unreachable now, each with the reason."""
        since_s = (self._clock() - self._begun_ms) / 1000
        found = [(span.machine, _until(span, since_s)) for span in self.config.unreachable]
        return {name: f"{name} cannot be reached {until} (unreachable)" for name, until in found if until}

    def next_change_s(self) -> float | None:
        """Seconds until the room changes by the clock; None: it does not."""
        spans: list[Span] = [*self.config.unreachable]
        spans += [self.config.no_room] if self.config.no_room is not None else []
        since_s = (self._clock() - self._begun_ms) / 1000
        moments = [moment for span in spans for moment in (span.after, span.after + (span.for_ or _FOR_EVER_S))]
        return min((moment - since_s for moment in moments if moment > since_s), default=None)

    async def _since_s(self) -> float:
        self._begun_ms = await self._jobs.begun_ms()
        return (self._clock() - self._begun_ms) / 1000

    async def _hang(self, verb: str, since_s: float) -> None:
        span = self.config.hang
        if span is not None and span.verb == verb and _until(span, since_s) is not None:
            await asyncio.sleep(_FOR_EVER_S if span.for_ is None else span.after + span.for_ - since_s)

    def _leave_alone(self, since_s: float) -> None:
        """Refuses calls for a while after each answered one, if the script says so.

        Raises PlatformUnavailable.
        """
        span, now_ms = self.config.retry_after, self._clock()
        if span is None or _until(span, since_s) is None:
            return
        if now_ms < self._alone_until_ms:
            sentence = f"the scripted cluster requires a pause of {span.wait:g} s after every call"
            raise PlatformUnavailable(f"{sentence} (retryAfter)", refused=True)
        self._alone_until_ms = now_ms + round(span.wait * 1000)

    def _is_accepted(self) -> bool:
        """Whether the token is accepted; also True if all tokens are."""
        accepted, token = self.config.accepted_token, self.config.token or ""
        return accepted is None or hashlib.sha256(token.encode()).hexdigest() == accepted


def _until(span: Span | None, since_s: float) -> str | None:
    """The end of the current span as an absolute time, as text; None: no span is active."""
    if span is None or since_s < span.after:
        return None
    if span.for_ is None:
        return "for ever"
    end_s = span.after + span.for_
    return f"until {end_s:g} s after the start of the experiment" if since_s < end_s else None


class AccountConnection(Connection):
    """The connection of an account. `settings`: those of the first experiment."""

    def __init__(self, key: str, settings: Account) -> None:
        super().__init__(key)
        self._pacing = Pacing(calls=settings.calls, per_s=settings.per)
        self._log = Path(settings.log) if settings.log else None

    async def open(self) -> None:
        await self._write("login")
        self.note_up()

    async def turn(self, verb: str) -> None:
        """Waits until the rate limit allows a call."""
        await self._pacing.turn()
        await self._write(verb)

    async def _write(self, what: str) -> None:
        """Appends a line to the cluster's log: seconds of a monotonic clock, and the verb."""
        if self._log is not None:
            await asyncio.to_thread(_append, self._log, f"{time.monotonic():.4f} {what}\n")


class AccountUse:
    """One service's use of the account. Raises OSError if the log cannot be written."""

    def __init__(self, settings: Account | None, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._connection: AccountConnection | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A context in which the account is used."""
        if (settings := self._settings) is None:
            yield
            return
        key, owner = f"scripted://{settings.name}", f"{self._host.experiment_id}/{self._host.service}"
        async with self._host.connections.lease(key, owner, lambda: AccountConnection(key, settings)) as lease:
            self._connection = lease.connection
            try:
                yield
            finally:
                self._connection = None

    async def turn(self, verb: str) -> None:
        if self._connection is not None:
            await self._connection.turn(verb)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write(line)
