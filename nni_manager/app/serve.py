"""Runs the daemon until it is told to end. Owns the signals: SIGTERM and SIGINT end it and leave jobs running."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop

from nni_manager import __version__
from nni_manager.api.application import create_application
from nni_manager.api.context import ApiContext
from nni_manager.app import log as logs
from nni_manager.app.build import control_socket, experiments, pointer
from nni_manager.app.doors import Doors
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import InvalidInput
from nni_manager.scheduler.service import Service
from nni_manager.scheduler.supervisor import Supervisor

log = logging.getLogger(__name__)

#: A daemon started for one command ends when no experiment was made for so long, in seconds.
_UNUSED_S = 60.0


def serve(settings: Settings, *, listen: bool, auto: bool, ready_fd: int | None, insecure: bool) -> int:
    """Answers the exit code. `auto`: end with the last experiment. `ready_fd`: where to write ``ready``.

    Raises AlreadyOwned, InvalidInput or StoreError before anything was started.
    """
    if listen and not insecure:
        _check_address(settings)
    os.umask(0o077)
    logs.set_up(settings.log_level)
    return uvloop.run(_serve(settings, listen=listen, auto=auto, ready_fd=ready_fd))


async def _serve(settings: Settings, *, listen: bool, auto: bool, ready_fd: int | None) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with experiments(settings) as (supervisor, service):
        if auto:
            _end_when_unused(supervisor, stopping)
        async with _doors(settings, service, stopping, listen=listen):
            log.info("ready: process %d, data directory %s", os.getpid(), settings.data_dir, extra={"action": "ready"})
            if ready_fd is not None:
                os.write(ready_fd, b"ready\n")
                os.close(ready_fd)
            await stopping.wait()
            log.info("the daemon ends; jobs go on", extra={"action": "end"})
    return 0


@asynccontextmanager
async def _doors(settings: Settings, service: Service, stopping: asyncio.Event, *, listen: bool) -> AsyncIterator[None]:
    socket = control_socket(settings.data_dir)
    doors: Doors
    context = ApiContext(
        service=service,
        version=__version__,
        data_directory=settings.data_dir,
        started_ms=now_ms(),
        doors=lambda: [{"kind": door.kind, "address": door.address} for door in doors.open],
        ready=lambda: "",
        stop_daemon=lambda with_experiments: _stop(service, stopping, with_experiments=with_experiments),
        stopping=stopping,
    )
    doors = Doors(create_application(context, token=settings.token, host=settings.host))
    try:
        await doors.open_control(socket)
        if listen:
            await doors.open_service(settings.host, settings.port)
        for door in doors.open:
            log.info("%s on %s", door.kind, door.address, extra={"action": "door"})
        async with pointer(settings.data_dir, socket):
            yield
    finally:
        stopping.set()
        await doors.close()


def _stop(service: Service, stopping: asyncio.Event, *, with_experiments: bool) -> None:
    async def stop() -> None:
        if with_experiments:
            await service.stop_all()
        stopping.set()

    task = asyncio.ensure_future(stop())
    _background.add(task)
    task.add_done_callback(_background.discard)


#: The event loop itself keeps only weak references to tasks.
_background: set[asyncio.Future[None]] = set()


def _end_when_unused(supervisor: Supervisor, stopping: asyncio.Event) -> None:
    supervisor.on_empty = stopping.set

    def look() -> None:
        if not supervisor.open_ids:
            stopping.set()

    asyncio.get_running_loop().call_later(_UNUSED_S, look)


def _check_address(settings: Settings) -> None:
    """A door that others can reach needs a token."""
    if settings.token or _is_loopback(settings.host):
        return
    raise InvalidInput(
        f"--host {settings.host} can be reached by others: set NNI_MANAGER_TOKEN, or say --insecure if that is meant"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
