"""A cache of all objects of one kind with our label: listed once, then watched.

An ended watch continues where it stopped. After a 410, and periodically for safety, all objects are listed again. While
watching is denied but listing is not, it polls with lists and periodically retries the watch: a server that has just
started may deny at first what it allows later.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.kubernetes.api.client import NO_RIGHT, Client, Object, Query, Refusal, parsed
from nni_manager.kubernetes.api.names import Resource
from nni_manager.platform_kit.tasks import ended, happened
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Objects per list page.
_PAGE = 500
#: Seconds: of one watch, between full lists, and between lists while watching is denied.
_WATCH_S = 300
_LIST_AGAIN_S = 900.0
_POLL_S = 5.0
#: Seconds before a denied watch is retried; the last value repeats.
_WATCH_WAITS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
#: Seconds after which refused credentials are retried less often, and the interval then.
_REFUSED_S = 60.0
#: Seconds of waits after failures; the last value repeats.
_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_GONE = 410
#: Number of removed objects to remember.
_GONE_KEPT = 5000


class Listener(Protocol):
    """A listener of an informer. It is called for every change, immediately, in the event loop."""

    def on_object(self, resource: Resource, found: Object) -> None:
        """Called when an object is new or has changed."""

    def on_removed(self, resource: Resource, last: Object, *, was_seen: bool) -> None:
        """Called when an object is gone. `was_seen`: its deletion was watched; otherwise a list lacks it."""

    def on_listed(self, resource: Resource, begun_s: float, names: frozenset[str]) -> None:
        """Called after a full list. The list's call began at that time of the loop."""


class Informer:
    """The objects of one kind with our label. `client`: awaited before each call, returns the current client;
    `on_trouble`: called when `trouble` changes.

    `renew`: reads refused credentials again, as they may have expired. Raises BadCredentials.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        client: Callable[[], Awaitable[Client]],
        *,
        query: Query,
        on_trouble: Callable[[Informer], None],
        renew: Callable[[Client], Awaitable[None]] | None = None,
    ) -> None:
        self.resource = resource
        self._path = resource.path(namespace)
        self._client = client
        self._query = tuple(query)
        self._on_trouble = on_trouble
        self._renew = renew
        #: The client of the last call.
        self._asked: Client | None = None
        #: The server has not been called with the current credentials yet.
        self._is_renewed = False
        self.objects: dict[str, Object] = {}
        self.listeners: list[Listener] = []
        #: Why the cache is not current; None: it is.
        self.trouble: PlatformError | None = PlatformUnavailable("the cluster has not answered yet", refused=True)
        #: Watching is denied: it polls every few seconds.
        self.polls = False
        #: When a denied watch is retried, by the loop's clock.
        self._watch_at_s = 0.0
        self._denied = Backoff(_WATCH_WAITS_S)
        #: Start of the period with refused credentials, by the loop's clock; None: accepted.
        self._refused_s: float | None = None
        #: Number of waits after consecutive 410 answers.
        self._expired = Backoff((0.0, *_WAITS_S))
        self._version = ""
        #: Version of the last list.
        self._listed_version = 0
        self._listed_s = float("-inf")
        self._failed = Backoff(_WAITS_S)
        #: Number of consecutive watches that ended at once without an event.
        self._short = 0
        #: uid → version of recently removed objects: a server may send old events.
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._synced = asyncio.Event()
        self._again = asyncio.Event()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"informer {self.resource.plural}")

    async def stop(self) -> None:
        await ended(self._task)

    @property
    def was_asked(self) -> bool:
        """Whether the server has answered, or refused, at least once."""
        return self._synced.is_set()

    async def ready(self) -> None:
        """Returns when the objects are known; otherwise raises the reason."""
        await self._synced.wait()
        if self.trouble is not None:
            raise self.trouble

    def try_again(self) -> None:
        """Retries at once, as the cause may be fixed."""
        self._again.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
                self._note(None)
            except Refusal as refusal:
                await self._react(refusal)
            except PlatformError as error:
                await self._on_failure(error)
            except Exception as error:  # a malformed object must not stop the informer of all trials
                log.exception("%s cannot be followed", self.resource.plural)
                await self._on_failure(PlatformUnavailable(f"{self.resource.plural}: {error}"))

    async def _round(self) -> None:
        """Lists if a list is due; otherwise watches until the watch ends."""
        loop = asyncio.get_running_loop()
        if not self._version or loop.time() >= self._listed_s + _LIST_AGAIN_S or self.polls:
            await self._list()
            self._note(None)
        if self.polls and loop.time() < self._watch_at_s:
            return await asyncio.sleep(_POLL_S)
        try:
            await self._watch()
        except Refusal as refusal:
            if refusal.status != 403:
                raise
            self._poll()

    async def _react(self, refusal: Refusal) -> None:
        """Reads expired credentials again before reporting a refusal."""
        if refusal.status != 401 or self._renew is None or self._is_renewed:
            self._is_renewed = False
            return await self._on_refusal(refusal)
        self._is_renewed = True
        try:
            assert self._asked is not None, "its call was refused"
            await self._renew(self._asked)
        except PlatformError as error:
            await self._on_failure(error)

    async def _on_refusal(self, refusal: Refusal) -> None:
        if refusal.status == _GONE:
            self._version = ""  # the server no longer has the watch's position: list everything
            return await asyncio.sleep(self._expired.next_wait())
        kind = BadCredentials if refusal.status in (401, 403) else PlatformUnavailable
        fix = f"; {NO_RIGHT}" if refusal.status == 403 else ""
        await self._on_failure(kind(f"{self.resource.plural} cannot be listed: {refusal}{fix}"))

    def _poll(self) -> None:
        """Notes that watching is denied, but listing is not."""
        if not self.polls:
            log.warning("watching %s is denied; listing them every %g s instead", self.resource.plural, _POLL_S)
        self.polls = True
        self._watch_at_s = asyncio.get_running_loop().time() + self._denied.next_wait()

    async def _on_failure(self, error: PlatformError) -> None:
        self._note(error)
        self._again.clear()
        wait_s = self._wait_s(error) * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        await happened(self._again, asyncio.timeout(wait_s))

    def _wait_s(self, error: PlatformError) -> float:
        now_s, wait_s = asyncio.get_running_loop().time(), self._failed.next_wait()
        self._refused_s = (self._refused_s or now_s) if isinstance(error, BadCredentials) else None
        if self._refused_s is not None and now_s - self._refused_s >= _REFUSED_S:
            return _REFUSED_S
        return wait_s

    def _note(self, trouble: PlatformError | None) -> None:
        if trouble is None:
            self._failed.reset()
            self._is_renewed = False
            self._refused_s = None
        is_new = (trouble is None) != (self.trouble is None) or not self._synced.is_set()
        self.trouble = trouble
        self._synced.set()
        if is_new:
            self._on_trouble(self)

    # Listing

    async def _list(self) -> None:
        begun_s = asyncio.get_running_loop().time()
        found: dict[str, Object] = {}
        page, version = "", ""
        while True:
            more = [("continue", page)] if page else []
            client = self._asked = await self._client()
            answer = await client.call("GET", self._path, query=[*self._query, ("limit", str(_PAGE)), *more])
            found.update({one["metadata"]["name"]: one for one in answer.get("items") or ()})
            meta = answer.get("metadata") or {}
            page, version = str(meta.get("continue") or ""), str(meta.get("resourceVersion") or "")
            if not page:
                break
        for name in [name for name in self.objects if name not in found]:
            self._remove(self.objects[name], was_seen=False)
        for one in found.values():
            self._put(one)
        self._version, self._listed_s = version, begun_s
        self._listed_version = _number(version)
        for listener in tuple(self.listeners):
            listener.on_listed(self.resource, begun_s, frozenset(found))

    async def find(self, name: str) -> bool:
        """Whether the server has an object of that name; if so, it is added to the cache. Raises as `Client.call`."""
        try:
            found = await (await self._client()).call("GET", f"{self._path}/{name}")
        except Refusal as refusal:
            if refusal.status == 404:
                return False
            raise
        self._put(found)
        return True

    async def ask(self, query: tuple[str, str]) -> bool:
        """Adds the results of a query to the cache, as the watch may lag. Returns True when done, False when denied
        for a minute."""
        begun_s = asyncio.get_running_loop().time()
        backoff = Backoff(_WAITS_S)
        while True:
            try:
                answer = await (await self._client()).call("GET", self._path, query=[query])
            except (PlatformError, Refusal) as error:
                lasted_s = asyncio.get_running_loop().time() - begun_s
                if isinstance(error, Refusal) and error.status in (403, 404) and lasted_s >= _REFUSED_S:
                    log.warning("%s cannot be listed: %s", self.resource.plural, error)
                    return False
                await asyncio.sleep(backoff.next_wait())
            else:
                for one in answer.get("items") or ():
                    self._put(one)
                return True

    # Watching

    async def _watch(self) -> None:
        query = [
            *self._query,
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(_WATCH_S)),
        ]
        client = self._asked = await self._client()
        begun_s = asyncio.get_running_loop().time()
        is_open = False
        try:
            async with client.lines(self._path, query, _WATCH_S + 10) as lines:
                is_open, self.polls = True, False
                self._note(None)
                self._denied.reset()
                async for line in lines:
                    if line.strip():
                        self._on_event(parsed(line))
                        self._short = 0
                        self._expired.reset()
        except PlatformUnavailable:
            if not is_open:  # a broken watch is restarted; that failing is the trouble
                raise
        await self._breathe(asyncio.get_running_loop().time() - begun_s)

    async def _breathe(self, lasted_s: float) -> None:
        """Waits a moment after short watches, so that a server that ends watches at once is not flooded."""
        self._short = self._short + 1 if lasted_s < 1 else 0
        if lasted_s >= 1:
            self._expired.reset()
        if self._short > 3:
            await asyncio.sleep(min(0.05 * self._short, 1.0))

    def _on_event(self, event: Object) -> None:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise Refusal(
                status=int(found.get("code") or 500),
                reason=str(found.get("reason") or ""),
                message=str(found.get("message") or ""),
            )
        if kind == "DELETED":
            self._remove(found, was_seen=True)
        elif kind in ("ADDED", "MODIFIED"):
            # an event of a removed object is old: the last list, which lacks the object, is newer
            if found["metadata"]["name"] in self.objects or _identity(found)[1] > self._listed_version:
                self._put(found)
        self._version = str(found["metadata"].get("resourceVersion") or self._version)

    def _put(self, found: Object) -> None:
        name, (uid, version) = found["metadata"]["name"], _identity(found)
        if uid in self._gone:
            return
        if (known := self.objects.get(name)) is not None:
            known_uid, known_version = _identity(known)
            if known_uid == uid and version <= known_version:
                return
        self.objects[name] = found
        for listener in tuple(self.listeners):
            listener.on_object(self.resource, found)

    def _remove(self, last: Object, *, was_seen: bool) -> None:
        name, (uid, version) = last["metadata"]["name"], _identity(last)
        known = self.objects.get(name)
        if uid in self._gone or (known is not None and _identity(known)[0] != uid):
            return
        self.objects.pop(name, None)
        if was_seen:  # an object missing in one list may be in the next
            self._gone[uid] = version
        while len(self._gone) > _GONE_KEPT:
            self._gone.popitem(last=False)
        for listener in tuple(self.listeners):
            listener.on_removed(self.resource, last, was_seen=was_seen)


def _identity(found: Object) -> tuple[str, int]:
    """The uid and the version of an object: versions of one kind are increasing numbers."""
    meta = found["metadata"]
    return str(meta.get("uid") or meta["name"]), _number(str(meta.get("resourceVersion") or ""))


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
