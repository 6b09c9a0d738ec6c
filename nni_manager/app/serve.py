"""Runs the daemon until it is told to end. Owns the signals: SIGTERM and SIGINT end it and leave jobs running."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvloop

from nni_manager import __version__
from nni_manager.api.application import create_application
from nni_manager.api.context import ApiContext
from nni_manager.api.trial_listener import create_trial_listener
from nni_manager.app import log as logs
from nni_manager.app.build import control_socket, experiments, ownership, pointer
from nni_manager.app.doors import Doors, Reserved, reserve
from nni_manager.app.trial_door import TrialDoor
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import InvalidInput
from nni_manager.scheduler.runner_desk import RunnerDesk
from nni_manager.scheduler.service import Service
from nni_manager.scheduler.supervisor import Supervisor
from nni_manager.web.pages import PagesContext, create_pages

log = logging.getLogger(__name__)

#: A daemon started for one command ends when no experiment was made for so long, in seconds.
_UNUSED_S = 60.0
#: It may be started while its predecessor is still ending; that takes so long at most, in seconds.
_LOCK_WAIT_S = 5.0


def serve(settings: Settings, *, service: bool, trials: bool, auto: bool, ready_fd: int | None, insecure: bool) -> int:
    """Answers the exit code. `service`: open the service's port; `trials`: the trial listener may open one.

    `auto`: end with the last experiment. `ready_fd`: where to write ``ready``.

    Raises AlreadyOwned, InvalidInput or StoreError before anything was started.
    """
    if service and not insecure:
        _check_address(settings)
    logs.set_up(settings.log_level)
    return uvloop.run(_serve(settings, listen=service, trials=trials, auto=auto, ready_fd=ready_fd))


async def _serve(settings: Settings, *, listen: bool, trials: bool, auto: bool, ready_fd: int | None) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ownership(settings.data_dir, wait_for_lock_s=_LOCK_WAIT_S if auto else 0))
        # before anything is started: a port that somebody else has must not cost a running experiment anything
        reserved = await asyncio.to_thread(reserve, settings.host, settings.port) if listen else None
        trial_door = TrialDoor(settings, allowed=trials)
        supervisor, service = await stack.enter_async_context(experiments(settings, trial_door))
        if auto:
            _end_when_unused(supervisor, stopping)
        desk = RunnerDesk(supervisor, trial_door.tokens, __version__)
        async with _doors(settings, service, stopping, reserved, auto=auto) as doors:
            trial_door.bind(doors, create_trial_listener(desk))
            _favour_the_loop()
            log.info("ready: process %d, data directory %s", os.getpid(), settings.data_dir, extra={"action": "ready"})
            if ready_fd is not None:
                os.write(ready_fd, b"ready\n")
                os.close(ready_fd)
            await stopping.wait()
            log.info("the daemon ends; jobs go on", extra={"action": "end"})
    return 0


@asynccontextmanager
async def _doors(
    settings: Settings, service: Service, stopping: asyncio.Event, reserved: Reserved | None, *, auto: bool
) -> AsyncIterator[Doors]:
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
        ends_by_itself=auto,
    )
    pages = create_pages(PagesContext(service=service, version=__version__))
    doors = Doors(create_application(context, token=settings.token, host=settings.host, pages=pages))
    try:
        await doors.open_control(socket)
        if reserved is not None:
            await doors.open_service(reserved)
        for door in doors.open:
            log.info("%s on %s", door.kind, door.address, extra={"action": "door"})
        async with pointer(settings.data_dir, socket):
            yield doors
    finally:
        stopping.set()
        await doors.close()


def _favour_the_loop() -> None:
    """Answers come in time also while results pour in by the thousand.

    What was imported and built so far stays for good and need not be looked through by every full collection, which
    took 40 ms of everybody's time. A thread that computes hands over after one millisecond instead of five.
    """
    gc.freeze()
    sys.setswitchinterval(0.001)


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
    def look() -> None:
        if supervisor.is_opening:
            look_later()  # what is coming may be refused
        elif not supervisor.open_ids:
            supervisor.is_ending = True
            stopping.set()

    def look_later() -> None:
        asyncio.get_running_loop().call_later(_UNUSED_S, look)

    supervisor.on_empty = look
    look_later()


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
