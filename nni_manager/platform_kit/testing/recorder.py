"""The scheduler's side of an adapter, as far as an adapter can see it: records every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import AttemptDecided
from nni_manager.domain.job import JobHandle
from nni_manager.domain.text import require_text
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.machines import LOCAL, KeeperConnection
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Delivery, Host


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredLines:
    """Lines of an outbox between two byte offsets, as delivered."""

    job_name: str
    outbox: str
    start: int
    end: int
    lines: tuple[str, ...]
    #: Id of the container that wrote them; empty: unknown.
    container: str = ""


class Recorder:
    """A scheduler that accepts results like the store: once, in order, without gaps."""

    def __init__(self, experiment_id: str = "contract", connections: Connections | None = None) -> None:
        self.experiment_id = experiment_id
        #: Shared by instances; a world that restarts creates new ones.
        self.connections = connections or Connections()
        #: Names of the jobs for which `wake` was called.
        self.woken: list[str] = []
        #: Set by every `wake`.
        self.news = asyncio.Event()
        #: Every call of `deliver`, with any result.
        self.handed_over: list[DeliveredLines] = []
        #: Awaited before a chunk is stored; may be replaced by something slow or raising.
        self.before_storing: Callable[[DeliveredLines], Awaitable[None]] = _go_on
        #: The experiment's folder, and its packed code; set by worlds of adapters that use them.
        self.folder = Path("no-folder")
        self.code_archive = Path("no-archive")
        #: Job name → (version, channel), and → the report of the end, of runners that are read.
        self.greetings: dict[str, tuple[str | None, str]] = {}
        self.ends: dict[str, str] = {}
        #: Job name → identities of its containers, the newest last.
        self.containers: dict[str, list[str]] = {}
        #: Ends that were delivered together with a job's last lines.
        self.told_ends: dict[str, Observation] = {}
        self._stored = asyncio.Event()
        self._accepted: set[str] = set()
        self._lines: dict[str, dict[str, list[str]]] = {}
        self._offsets: dict[str, dict[str, int]] = {}

    def other(self, experiment_id: str) -> Recorder:
        """The recorder of another experiment of the same daemon, in a folder next to this one's, with the same code."""
        other = Recorder(experiment_id, self.connections)
        other.folder, other.code_archive = self.folder.with_name(experiment_id), self.code_archive
        return other

    def host(self, keeper: Keeper) -> Host:
        """The host to give to an adapter."""
        self.connections.offer(LOCAL, lambda: KeeperConnection(keeper, self.connections.shared_object(Places)))
        return Host(
            experiment_id=self.experiment_id,
            service="service",
            wake=self._wake,
            deliver=self._deliver,
            followed=self._followed,
            stored=self._stored_of,
            connections=self.connections,
            folder=self.folder,
            code=self._code,
            register=self._register,
            exited=self._exited,
        )

    def accept(self, handle: JobHandle) -> JobHandle:
        """Notes that a job is followed from now on; returns its argument."""
        self._accepted.add(handle.job_name)
        return handle

    def lines(self, job_name: str, outbox: str) -> list[str]:
        """The stored lines of an outbox."""
        return self._lines.get(job_name, {}).get(outbox, [])

    async def until_lines(self, job_name: str, outbox: str, count: int) -> list[str]:
        """The lines of an outbox, as soon as that number is stored. Bounded by the test's time limit."""
        while len(self.lines(job_name, outbox)) < count:
            self._stored.clear()
            await self._stored.wait()
        return self.lines(job_name, outbox)

    def offset(self, job_name: str, outbox: str) -> int:
        """The number of stored bytes of an outbox."""
        return self._offsets.get(job_name, {}).get(outbox, 0)

    def lose(self, job_name: str, outbox: str) -> None:
        """Loses the stored lines of an outbox."""
        self._lines.get(job_name, {}).pop(outbox, None)
        self._offsets.get(job_name, {}).pop(outbox, None)

    def _wake(self, job_name: str) -> None:
        self.woken.append(job_name)
        self.news.set()

    async def _followed(self, names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        return {name: dict(self._offsets.get(name, {})) for name in self._accepted.union(names)}

    async def _stored_of(self, job_name: str) -> Mapping[str, int]:
        return dict(self._offsets.get(job_name, {}))

    async def _code(self) -> Path:
        return self.code_archive

    async def _register(
        self,
        job_name: str,
        runner_version: str | None,
        channel: str,
        *,
        container: str = "",
        outboxes: Mapping[str, int] | None = None,
    ) -> None:
        """Registers a container like the store: the newest container counts.

        Offsets restart at 0 if it found less than is stored.
        """
        known = self.containers.setdefault(job_name, [])
        if container and container in known[:-1]:
            raise AttemptDecided("a newer container has registered")
        if container and known and container not in known:
            self.ends.pop(job_name, None)
            stored = self._offsets.get(job_name, {})
            stored.update({name: 0 for name, size in stored.items() if (outboxes or {}).get(name, 0) < size})
        if container and container not in known:
            known.append(container)
        self.greetings[job_name] = (runner_version, channel)

    async def _exited(self, job_name: str, word: str) -> None:
        self.ends.setdefault(job_name, word)
        self.news.set()

    async def _deliver(
        self,
        job_name: str,
        outbox: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None = None,
        container: str = "",
    ) -> Delivery:
        require_text("outbox", outbox)
        chunk = DeliveredLines(
            job_name=job_name, outbox=outbox, start=start, end=end, lines=tuple(lines), container=container
        )
        self.handed_over.append(chunk)
        await self.before_storing(chunk)
        newest = self.containers.get(job_name, [])[-1:]
        is_fenced = bool(container and newest and newest != [container])
        delivery = Delivery(resend=False) if is_fenced else self._store(chunk)
        if ended is not None and not delivery.resend:
            self.told_ends[job_name] = ended
            self.news.set()
        return delivery

    def _store(self, chunk: DeliveredLines) -> Delivery:
        stored = self.offset(chunk.job_name, chunk.outbox)
        if chunk.end <= stored:
            return Delivery(resend=False)
        if chunk.start != stored:
            return Delivery(resend=True)
        self._offsets.setdefault(chunk.job_name, {})[chunk.outbox] = chunk.end
        self._lines.setdefault(chunk.job_name, {}).setdefault(chunk.outbox, []).extend(chunk.lines)
        self._stored.set()
        return Delivery(resend=False)


async def _go_on(_chunk: DeliveredLines) -> None:
    """Does nothing, so that a chunk is stored at once."""
