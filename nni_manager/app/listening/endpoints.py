"""The experiments' endpoints: TCP ports, each opened for one experiment and closed with it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp

from nni_manager.app.listening import ports
from nni_manager.app.listening.endpoint_application import EndpointParts
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.config.settings import Settings
from nni_manager.domain.endpoint import DEFAULT_PORT, Endpoint, EndpointWish
from nni_manager.domain.errors import AlreadyOwned, Conflict, InvalidInput, NniManagerError

log = logging.getLogger(__name__)

#: Seconds between two attempts to open a recorded endpoint: no event reports a free port.
_AGAIN_S = 2.0
#: Ports, from 8080 up, that are tried when none was requested.
_NEXT_PORTS = 200
#: Wildcard address → the loopback address that local users connect to.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (named, not bound)
_OWN_LISTENERS = {"service": "this daemon's service", "trials": "this daemon's trial listener"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    endpoint: Endpoint
    reserved: Reserved


class EndpointSockets:
    """The `Endpoints` of the scheduler, as sockets. `allowed`: False with ``--no-listen``."""

    def __init__(self, settings: Settings, *, allowed: bool, insecure: bool = False) -> None:
        self._settings = settings
        self._allowed = allowed
        self._insecure = insecure
        self._listeners: asyncio.Future[tuple[Listeners, EndpointParts]] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._opened: dict[str, _Opened] = {}
        self._restoring: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        #: Experiments with recorded endpoints that were not tried yet.
        self._untried: set[str] = set()
        self._all_tried = asyncio.Event()
        self._all_tried.set()

    def bind(self, listeners: Listeners, parts: EndpointParts) -> None:
        """Sets the daemon's listeners and the applications to serve; `open` waits for this."""
        self._listeners.set_result((listeners, parts))

    @property
    def first_port(self) -> int:
        """The port of the endpoint that was opened first; 0: none."""
        return next((opened.endpoint.port for opened in self._opened.values()), 0)

    async def open(self, experiment_id: str, wish: EndpointWish) -> Endpoint | None:
        listeners, _ = await asyncio.shield(self._listeners)
        if not wish.is_explicit and self._needs_none(listeners):
            return None
        self._check()
        async with self._turn:
            endpoint = await (
                self._open_any(experiment_id, wish) if wish.port is None else self._open(experiment_id, wish)
            )
            await self._end_restoring(experiment_id)  # only now: if no other opens, the recorded one is still wanted
        return endpoint

    def restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        self._untried.add(experiment_id)
        self._all_tried.clear()
        restoring = asyncio.create_task(self._restore(experiment_id, endpoint), name=f"endpoint of {experiment_id}")
        self._restoring[experiment_id] = restoring

    async def close(self, experiment_id: str) -> None:
        await self._end_restoring(experiment_id)
        async with self._turn:
            opened = self._opened.pop(experiment_id, None)
            if opened is not None:
                listeners, _ = await self._listeners
                await listeners.close_port(opened.reserved)
                log.info("endpoint on %s is closed", opened.reserved.address, extra={"action": "listener"})

    def url(self, endpoint: Endpoint) -> str:
        host = _EVERYWHERE.get(self._settings.host, self._settings.host)
        return f"{http_address(host, endpoint.port)}{endpoint.path}"

    def problem(self, experiment_id: str) -> str:
        return self._problems.get(experiment_id, "")

    async def tried(self) -> None:
        """Waits until every recorded endpoint is open or has a problem."""
        await self._all_tried.wait()

    async def end(self) -> None:
        """Stops restoring endpoints, as the daemon ends. Open ports are closed with all listeners."""
        await asyncio.gather(*map(self._end_restoring, tuple(self._restoring)))

    # Opening

    def _needs_none(self, listeners: Listeners) -> bool:
        return not self._allowed or any(listener.kind == "service" for listener in listeners.open)

    def _check(self) -> None:
        """Raises Conflict or InvalidInput."""
        if not self._allowed:
            raise Conflict(
                "this daemon was started with --no-listen and opens no port: start it without, or ask for none"
            )
        if not self._insecure:
            ports.check_exposure(self._settings)

    async def _open_any(self, experiment_id: str, wish: EndpointWish) -> Endpoint:
        for port in range(DEFAULT_PORT, DEFAULT_PORT + _NEXT_PORTS):
            try:
                return await self._open(experiment_id, EndpointWish(port=port, prefix=wish.prefix))
            except AlreadyOwned:
                continue
        raise AlreadyOwned(
            f"ports {DEFAULT_PORT} to {DEFAULT_PORT + _NEXT_PORTS - 1} are all in use; choose another with --port"
        )

    async def _open(self, experiment_id: str, wish: EndpointWish) -> Endpoint:
        assert wish.port is not None
        listeners, parts = await self._listeners
        before = self._opened.get(experiment_id)
        if before is not None and before.endpoint.port == wish.port:
            reserved = before.reserved
        else:
            self._refuse_own(wish.port, listeners)
            reserved = await reserve_in_thread(partial(reserve, self._settings.host, wish.port))
        endpoint = Endpoint(port=reserved.port, prefix=wish.prefix)
        application = parts.build(experiment_id, endpoint)
        if before is not None and before.reserved is reserved:
            listeners.exchange(reserved, application)
        else:
            await _open_whole(listeners, reserved, application)
            log.info("endpoint of %s on %s", experiment_id, self.url(endpoint), extra={"action": "listener"})
        self._opened[experiment_id] = _Opened(endpoint=endpoint, reserved=reserved)
        if before is not None and before.reserved is not reserved:
            await listeners.close_port(before.reserved)
        return endpoint

    def _refuse_own(self, port: int, listeners: Listeners) -> None:
        """Raises AlreadyOwned, naming the listener, if one of this daemon's listeners has the port."""
        names = {listener.port: _OWN_LISTENERS.get(listener.kind, "") for listener in listeners.open}
        names |= {opened.endpoint.port: f"the endpoint of experiment {id}" for id, opened in self._opened.items()}
        if port and names.get(port):
            raise AlreadyOwned(f"port {port} is in use by {names[port]}; choose another with --port")

    # Restoring

    async def _restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        await asyncio.shield(self._listeners)
        while not await self._try_again(experiment_id, EndpointWish(port=endpoint.port, prefix=endpoint.prefix)):  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_S)
        self._problems.pop(experiment_id, None)
        self._restoring.pop(experiment_id, None)

    async def _try_again(self, experiment_id: str, wish: EndpointWish) -> bool:
        try:
            self._check()
            async with self._turn:
                await self._open(experiment_id, wish)
        except (NniManagerError, OSError) as error:
            self._note(experiment_id, f"its endpoint cannot be opened again: {_reason(error)}")
            return False
        finally:
            self._mark_tried(experiment_id)
        return True

    def _mark_tried(self, experiment_id: str) -> None:
        self._untried.discard(experiment_id)
        if not self._untried:
            self._all_tried.set()

    def _note(self, experiment_id: str, sentence: str) -> None:
        if self._problems.get(experiment_id) != sentence:
            log.error("experiment %s: %s", experiment_id, sentence, extra={"action": "listener"})
            self._problems[experiment_id] = sentence

    async def _end_restoring(self, experiment_id: str) -> None:
        restoring = self._restoring.pop(experiment_id, None)
        self._problems.pop(experiment_id, None)
        if restoring is not None:
            restoring.cancel()
            await asyncio.wait({restoring})
            self._mark_tried(experiment_id)


async def _open_whole(listeners: Listeners, reserved: Reserved, application: ASGIApp) -> None:
    """Opens an endpoint; on failure the port is closed, as no record of it would remain."""
    try:
        await listeners.open_endpoint(reserved, application)
    except BaseException:
        await listeners.close_port(reserved)
        reserved.give_back()
        raise


def _reason(error: NniManagerError | OSError) -> str:
    """The error's sentence without its advice on options, for an endpoint that is restored."""
    sentence = str(error)
    if isinstance(error, AlreadyOwned | InvalidInput):
        return f"{sentence.partition('; choose')[0]}; it is tried again"
    return sentence
