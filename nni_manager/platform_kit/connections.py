"""Connections that experiments share on one machine, account or cluster: clients, tokens, rate limits, informers, a
machine's keeper.

A connection lives in the daemon, once per key, from its first lease to its last. The key is an identity without
secrets: scheme, host, port, user, namespace. Every lease has its experiment's own credential, which is checked before
the experiment may use the connection. The connection uses one credential at a time. If that is refused later, another
lease's credential replaces it; if none is left, all leases get the refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import BadCredentials

log = logging.getLogger(__name__)


#: The place of a manager: ``host``, ``machine``, ``directory``, ``inode`` and ``claimed_ms`` of its data directory, and
#: the ``run`` of its daemon, as compared by `trial_runner.keeper.arrival`.
Place = Mapping[str, object]


class HealthState(StrEnum):
    """Whether a connection can be used."""

    #: No call has succeeded or failed yet.
    CONNECTING = "connecting"
    #: The last call was answered.
    UP = "up"
    #: The last call was not answered.
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a connection, as displayed by status, doctor and page."""

    state: HealthState
    #: Milliseconds since the epoch.
    since_ms: int
    #: Why it is down; empty otherwise.
    sentence: str = ""


class Connection:
    """The base of connections to a machine, account or cluster. `clock`: milliseconds since the epoch."""

    def __init__(self, key: str, clock: Clock = now_ms) -> None:
        self.key = key
        self._clock = clock
        self.health = Health(state=HealthState.CONNECTING, since_ms=clock())
        #: Called when `health` changes.
        self.on_health: list[Callable[[], None]] = []
        #: Called when it is UP again after it was DOWN.
        self.on_return: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Opens the connection; called once, before anything else.

        Does not wait for the remote side: an unreachable one is DOWN.
        """

    async def close(self) -> None:
        """Ends the connection, with all its tasks, threads, files and sockets."""

    async def check(self, credential: str) -> None:
        """Checks with the remote side whether `credential` (opaque, the adapter's own) is valid.

        Raises BadCredentials, or PlatformUnavailable without an answer.
        """

    async def use(self, credential: str) -> None:
        """Uses this credential, which was checked, from now on."""

    def note_up(self) -> None:
        self._note(HealthState.UP, "")

    def note_down(self, sentence: str) -> None:
        self._note(HealthState.DOWN, sentence)

    def _note(self, state: HealthState, sentence: str) -> None:
        if (state, sentence) == (self.health.state, self.health.sentence):
            return
        since_ms = self.health.since_ms if state is self.health.state else self._clock()
        if state is not self.health.state:
            log.info("connection %s: %s%s", self.key, state, f": {sentence}" if sentence else "")
        is_back = state is HealthState.UP and self.health.state is HealthState.DOWN
        self.health = Health(state=state, since_ms=since_ms, sentence=sentence)
        for callback in tuple(self.on_health):
            callback()
        if is_back:
            self.on_return()


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


class Lease(Generic[C]):
    """One experiment's share of a connection; created by `Connections.lease`."""

    def __init__(self, shared: _Shared, connection: C, owner: str, credential: str) -> None:
        self._shared = shared
        #: For methods that need no credential; call `use` first for the others.
        self.connection = connection
        self.owner = owner
        self._credential = credential
        #: Refused; not used for others until its own experiment has found it valid again.
        self.is_refused = False

    def __repr__(self) -> str:  # without the credential
        return f"Lease(key={self.connection.key!r}, owner={self.owner!r})"

    @property
    def is_served(self) -> bool:
        """Whether the connection currently uses this lease's credential, whichever lease supplied it."""
        in_use = self._shared.in_use
        return in_use is not None and in_use._credential == self._credential

    @property
    def serving(self) -> object:
        """The lease that supplied the connection's credential; `refused` may choose another one."""
        return self._shared.in_use

    async def use(self) -> C:
        """The connection, after checking this lease's credential. Raises BadCredentials or PlatformUnavailable."""
        await self._shared.admit(self, self._credential)
        return self.connection

    async def renew(self, credential: str) -> None:
        """Sets another credential for the same experiment; it is checked on next use."""
        self._credential = credential
        self.is_refused = False
        self._shared.forget(self)

    async def refused(self, error: BadCredentials) -> None:
        """Switches to another lease's credential after the remote side refused the current one, or raises `error`
        again."""
        await self._shared.replace(error)


@dataclass(slots=True)
class _Shared:
    connection: Connection
    leases: list[Lease[Any]] = field(default_factory=list)
    #: The lease that supplied the current credential.
    in_use: Lease[Any] | None = None
    #: Leases with an accepted credential.
    admitted: set[int] = field(default_factory=set)
    #: Serializes checks and changes.
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: asyncio.Future[None] | None = None

    async def admit(self, lease: Lease[Any], credential: str) -> None:
        if id(lease) in self.admitted and self.in_use is not None:
            return
        async with self.changing:
            if id(lease) not in self.admitted:
                await self._check(lease, credential)
            if self.in_use is None:
                await self.connection.use(credential)
                self.in_use = lease

    async def _check(self, lease: Lease[Any], credential: str) -> None:
        try:
            await self.connection.check(credential)
        except BadCredentials:
            lease.is_refused = True
            raise
        lease.is_refused = False
        self.admitted.add(id(lease))

    async def replace(self, error: BadCredentials) -> None:
        async with self.changing:
            if self.in_use is not None:
                self.in_use.is_refused = True
                self.forget(self.in_use)
            for lease in [lease for lease in self.leases if not lease.is_refused]:
                try:
                    await self._check(lease, lease._credential)
                except BadCredentials:
                    continue
                await self.connection.use(lease._credential)
                self.in_use = lease
                return
        raise error

    def forget(self, lease: Lease[Any]) -> None:
        """Forgets that this lease's credential was accepted."""
        self.admitted.discard(id(lease))
        if self.in_use is lease:
            self.in_use = None

    def pass_on(self, lease: Lease[Any]) -> None:
        """Ends the use of a returned lease. A lease with the same credential takes over without a new login."""
        was_in_use = self.in_use is lease
        self.forget(lease)
        if was_in_use:
            heirs = (other for other in self.leases if other._credential == lease._credential)
            self.in_use = next((heir for heir in heirs if id(heir) in self.admitted), None)


class Connections:
    """All connections of a daemon, and other objects that its experiments share."""

    def __init__(self, identity: str = "nobody", place: Callable[[], Place] | None = None) -> None:
        #: Identity of this daemon, the same after a restart: it separates the files of several daemons on one machine.
        self.identity = identity
        #: Reads this daemon's place, which is sent to machines so that they detect a copy of it; None: none is sent.
        #: Blocks; raises OSError.
        self.place = place
        #: Called with the key of a connection that is UP again after it was DOWN.
        self.on_return: Callable[[str], None] = lambda _: None
        self._shared: dict[str, _Shared] = {}
        #: Connections that the daemon itself creates.
        self._makers: dict[str, Callable[[], Connection]] = {}
        self._objects: dict[type, object] = {}

    def shared_object(self, kind: type[T]) -> T:
        """The daemon's single object of a class without arguments, created on first use."""
        found = self._objects.get(kind)
        if found is None:
            found = self._objects[kind] = kind()
        assert isinstance(found, kind)
        return found

    def offer(self, key: str, make: Callable[[], Connection]) -> None:
        """Sets how the connection `key` is created, for leases without a `make` of their own."""
        self._makers[key] = make

    @asynccontextmanager
    async def lease(
        self, key: str, owner: str, make: Callable[[], C] | None = None, credential: str = ""
    ) -> AsyncIterator[Lease[C]]:
        """The connection of `key`, created with `make` if there is none. `owner`: experiment and service.

        Without `make`, as set by `offer`. Returns without waiting for the remote side.
        """
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared((make or self._makers[key])())
            shared.connection.on_return = lambda: self.on_return(key)
            shared.opened = asyncio.ensure_future(shared.connection.open())
        connection: Any = shared.connection
        lease: Lease[C] = Lease(shared, connection, owner, credential)
        shared.leases.append(lease)
        try:
            assert shared.opened is not None, "set when it was made"
            await asyncio.shield(shared.opened)
            yield lease
        finally:
            await self._give_back(key, shared, lease)

    def in_use(self, kind: type[C]) -> list[C]:
        """The used connections of a class."""
        return [shared.connection for shared in self._shared.values() if isinstance(shared.connection, kind)]

    def health(self) -> dict[str, Health]:
        """The health of each used connection, by key."""
        return {key: shared.connection.health for key, shared in self._shared.items()}

    async def _give_back(self, key: str, shared: _Shared, lease: Lease[Any]) -> None:
        shared.leases.remove(lease)
        shared.pass_on(lease)
        if shared.leases:
            return
        if self._shared.get(key) is shared:
            del self._shared[key]  # the next lease creates a new one
        if shared.opened is not None and not shared.opened.done():
            shared.opened.cancel()
        await shared.connection.close()
