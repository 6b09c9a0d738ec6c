"""Runs the daemon until SIGTERM or SIGINT ends it. Jobs keep running."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import uvloop
from starlette.types import ASGIApp

from nni_manager import __version__
from nni_manager.analysis.service import Analysis
from nni_manager.api import code, submission
from nni_manager.api.access.guard import Guard, LocalUsers
from nni_manager.api.application import create_api, create_application
from nni_manager.api.context import ApiContext
from nni_manager.api.nni.application import create_nni_application
from nni_manager.api.nni.placeholder_process import PlaceholderProcesses
from nni_manager.api.runners.trial_listener import TrialListener
from nni_manager.app import log as logs
from nni_manager.app.build import experiments, ownership, socket_path
from nni_manager.app.daemon_address import DaemonAddress, make_way
from nni_manager.app.late_pages import LatePages
from nni_manager.app.listening import ports, reserves, trial_listener
from nni_manager.app.listening.endpoints import EndpointParts, EndpointSockets
from nni_manager.app.listening.listeners import Listener, Listeners
from nni_manager.app.listening.ports import Reserved, reserve
from nni_manager.app.listening.trial_listener import TrialListenerSocket
from nni_manager.app.nni_list import NniList
from nni_manager.client import data_directory
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import now_ms
from nni_manager.platform_kit.tasks import ended
from nni_manager.platform_kit.threads import SteadyThreads
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.disk_watch import watched
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.runner_reports import RunnerReports
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.folder import Ownership
from nni_manager.store.nni import nni_registry
from nni_manager.web.context import PagesContext

log = logging.getLogger(__name__)

#: Allocated minus freed objects that trigger a collection of the youngest generation.
_YOUNG_OBJECTS = 10_000
#: Seconds without an experiment after which a daemon that was started for one command ends.
_UNUSED_S = 60.0
#: Seconds to wait for the lock of a predecessor that is still ending.
_LOCK_WAIT_S = 5.0


def serve(settings: Settings, *, listen: bool, trials: bool, auto: bool, ready_fd: int | None, insecure: bool) -> int:
    """Run the daemon; return the exit code.

    `listen`: open the service's port. `trials`: the trial listener may open a port. `auto`: end with the last
    experiment. `ready_fd`: descriptor for ``ready``. Raises AlreadyOwned, InvalidInput or StoreError before the start.
    """
    ports.check_read_token(settings)
    if listen and not insecure:
        ports.check_exposure(settings)
    if listen and trials:
        trial_listener.check(settings)
    logs.set_up(settings.log_level, settings.data_dir)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent may have blocked SIGTERM and SIGINT
    reserves.allow_many()
    return uvloop.run(_serve(settings, listen=listen, trials=trials, auto=auto, ready_fd=ready_fd, insecure=insecure))


async def _serve(
    settings: Settings, *, listen: bool, trials: bool, auto: bool, ready_fd: int | None, insecure: bool
) -> int:
    stopping = asyncio.Event()
    asyncio.get_running_loop().set_default_executor(SteadyThreads(thread_name_prefix="blocking"))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        # a permanent daemon takes over from one that was started for a command
        is_to_wait = auto or await asyncio.to_thread(make_way, settings, listen=listen)
        wait_s = _LOCK_WAIT_S if is_to_wait else 0
        lock = await stack.enter_async_context(ownership(settings.data_dir, wait_for_lock_s=wait_s))
        # before the start, because a port in use must not disturb a running experiment
        reserved = await asyncio.to_thread(reserve, settings.host, settings.port) if listen else None
        warnings = DaemonWarnings()
        endpoints = EndpointSockets(settings, allowed=trials, insecure=insecure)
        # the trial listener opens next to the service's port, else next to the first endpoint's
        trial_listener = TrialListenerSocket(
            settings,
            warnings,
            allowed=trials,
            neighbour=lambda: settings.port if listen else endpoints.first_port or settings.port,
        )
        supervisor, commands = await stack.enter_async_context(
            experiments(settings, trial_listener, endpoints, warnings)
        )
        if auto:
            _end_when_unused(supervisor, stopping)
        reports = RunnerReports(supervisor, trial_listener.tokens, __version__)
        placeholders = PlaceholderProcesses(commands, stopping)
        stack.push_async_callback(placeholders.close)
        analysis = Analysis(commands.stored_state)
        stack.push_async_callback(analysis.close)
        await stack.enter_async_context(watched(commands, warnings))
        async with _listeners(
            settings, lock, commands, analysis, stopping, placeholders, reserved, endpoints, auto=auto
        ) as listeners:
            trial_listener.bind(listeners, TrialListener(reports), commands.may_have_jobs)
            await endpoints.tried()
            async with _registry(settings, supervisor, commands, placeholders, endpoints, listeners):
                _tune_interpreter()
                _say_ready(settings, ready_fd, auto=auto)
                await stopping.wait()
            log.info("the daemon ends; jobs keep running", extra={"action": "end"})
    return 0


def _note_service(settings: Settings, listeners: Listeners) -> None:
    """Record the service, so that the next daemon can report its loss if this one is killed."""
    address = next(listener.address for listener in listeners.open if listener.kind == "service")
    words = ["--data-dir", str(settings.data_dir), "--host", settings.host, "--port", address.rpartition(":")[2]]
    words += ["--token-file", "FILE"] if settings.token else []
    words += ["--read-token-file", "FILE"] if settings.read_token else []
    try:
        data_directory.note_service(settings.data_dir, address, ["nni-manager", "serve", *words])
    except OSError as error:
        log.warning("the address of the service cannot be stored: %s", error)


def _say_ready(settings: Settings, ready_fd: int | None, *, auto: bool) -> None:
    log.info("ready: process %d, data directory %s", os.getpid(), settings.data_dir, extra={"action": "ready"})
    if auto and (lost := data_directory.lost_service(settings.data_dir)):
        log.warning("%s", lost, extra={"action": "listener"})
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)


@asynccontextmanager
async def _listeners(
    settings: Settings,
    lock: Ownership,
    commands: ExperimentCommands,
    analysis: Analysis,
    stopping: asyncio.Event,
    placeholders: PlaceholderProcesses,
    reserved: Reserved | None,
    endpoints: EndpointSockets,
    *,
    auto: bool,
) -> AsyncIterator[Listeners]:
    listeners: Listeners
    shown = PagesContext(
        commands=commands,
        version=__version__,
        analysis=analysis,
        stopping=stopping,
        describe_api=lambda: api.openapi(),
        read_experiment=lambda text: submission.of_pasted(text, context),
        sweep_code=partial(code.sweep, settings.data_dir),
        data_directory=settings.data_dir,
    )
    pages = LatePages(shown)
    context = _context(settings, shown, pages, placeholders, lambda: listeners.open, auto=auto)
    api = create_api(context)
    nni = create_nni_application(context)
    application = create_application(
        context,
        token=settings.token,
        read_token=settings.read_token,
        host=settings.host,
        pages=pages,
        api=api,
        nni=nni,
        users=_users(settings),
    )
    listeners = Listeners(application, lag=context.loop_lag)
    try:
        socket = partial(socket_path, settings.data_dir, "control")
        daemon_address = DaemonAddress(listeners, settings.data_dir, lock, socket, on_homeless=stopping.set)
        async with daemon_address.kept():
            if reserved is not None:
                await listeners.open_port("service", reserved)
                _note_service(settings, listeners)
            for listener in listeners.open:
                log.info("%s on %s", listener.kind, listener.address, extra={"action": "listener"})
            endpoints.bind(listeners, EndpointParts(nni=nni, api=api, pages=pages, guarded=_guard(settings)))
            pages.import_soon()
            yield listeners
            if reserved is not None:
                data_directory.forget_service(settings.data_dir)
    finally:
        stopping.set()
        await endpoints.end()
        await listeners.close()


def _context(
    settings: Settings,
    shown: PagesContext,
    pages: LatePages,
    placeholders: PlaceholderProcesses,
    listeners: Callable[[], Sequence[Listener]],
    *,
    auto: bool,
) -> ApiContext:
    commands, stopping = shown.commands, shown.stopping
    return ApiContext(
        commands=commands,
        version=__version__,
        data_directory=settings.data_dir,
        started_ms=now_ms(),
        listeners=lambda: [{"kind": listener.kind, "address": listener.address} for listener in listeners()],
        stop_daemon=lambda with_experiments: _stop(commands, stopping, with_experiments=with_experiments),
        stopping=stopping,
        placeholders=placeholders,
        analysis=shown.analysis,
        report=pages.report,
        ends_by_itself=auto,
    )


@asynccontextmanager
async def _registry(
    settings: Settings,
    supervisor: Supervisor,
    commands: ExperimentCommands,
    placeholders: PlaceholderProcesses,
    endpoints: EndpointSockets,
    listeners: Listeners,
) -> AsyncIterator[None]:
    """A context in which NNI's list of experiments is kept current."""
    path = nni_registry.default_path()
    if path is None:
        yield
        return
    registry = NniList(
        path=path,
        entries=commands.entries,
        listeners=lambda: listeners.open,
        url=endpoints.url,
        pid=placeholders.pid,
        is_open=commands.is_open,
        data_directory=settings.data_dir,
    )
    await registry.begin()
    supervisor.on_change = placeholders.on_loss = registry.note
    task = asyncio.create_task(registry.run(), name="registry")
    try:
        yield
    finally:
        await ended(task)


def _guard(settings: Settings) -> Callable[[ASGIApp], ASGIApp]:
    """Put the guard of the service around an endpoint's application."""
    token, read_token = settings.token, settings.read_token
    return lambda app: Guard(app, token=token, read_token=read_token, hosts=(settings.host,), users=_users(settings))


def _users(settings: Settings) -> LocalUsers:
    """The local users admitted without a token.

    On an address that other machines reach, all are admitted: it requires a token or ``--insecure`` anyway.
    """
    return LocalUsers(settings.allow_local_users if ports.is_loopback(settings.host) else True)


def _tune_interpreter() -> None:
    """Keep answers quick while thousands of results arrive.

    Existing objects are frozen, because a full collection that scans these permanent objects blocks for 40 ms. An
    answer or a cluster's event consists of hundreds of short-lived objects, so a collection at every 700 costs 2 % of
    the processor time. The thread switch interval is 1 ms instead of 5.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.enable()
    sys.setswitchinterval(0.001)


def _stop(commands: ExperimentCommands, stopping: asyncio.Event, *, with_experiments: bool) -> None:
    async def stop() -> None:
        if with_experiments:
            await commands.stop_all()
        stopping.set()

    task = asyncio.ensure_future(stop())
    _background.add(task)
    task.add_done_callback(_background.discard)


#: Keeps references to tasks, because the event loop has only weak ones.
_background: set[asyncio.Future[None]] = set()


def _end_when_unused(supervisor: Supervisor, stopping: asyncio.Event) -> None:
    def look() -> None:
        if supervisor.is_opening:
            look_later()  # an experiment that is being created may be refused
        elif supervisor.has_work:
            return
        elif supervisor.shared.leftovers.may_run(now_ms()):
            look_later()
        else:
            supervisor.is_ending = True
            stopping.set()

    def look_later() -> None:
        asyncio.get_running_loop().call_later(_UNUSED_S, look)

    supervisor.on_empty = look
    look_later()
