"""Builds the daemon in order, and takes it down in the reverse order: doors, loops, keeper connection, store, lock."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from nni_manager import __version__
from nni_manager.config.settings import Settings, runtime_directory
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.platform_kit.keeper_process import LocalKeeper
from nni_manager.scheduler.open_experiment import Means
from nni_manager.scheduler.service import Service
from nni_manager.scheduler.supervisor import Supervisor
from nni_manager.store import index, migrate
from nni_manager.store.database import Database
from nni_manager.store.ownership import Ownership

#: In the data directory: where the control socket is.
POINTER_FILE = "control.json"


@asynccontextmanager
async def experiments(settings: Settings) -> AsyncIterator[tuple[Supervisor, Service]]:
    """Everything but the doors. Raises AlreadyOwned, InvalidInput or StoreError before anything was started."""
    _make_data_directory(settings.data_dir)
    async with AsyncExitStack() as stack:
        lock = Ownership(settings.data_dir / "daemon.lock", f"the data directory {settings.data_dir}")
        stack.callback(lock.release)
        index_database = await _open_index(settings.data_dir)
        stack.push_async_callback(index_database.close)
        keeper = await stack.enter_async_context(_keeper(settings.data_dir))
        supervisor = Supervisor(index_database, Means(settings=settings, keeper=keeper, clock=now_ms))
        await stack.enter_async_context(supervisor.running())
        yield supervisor, Service(supervisor)


def control_socket(data_directory: Path) -> Path:
    """Where the control socket of a data directory lies."""
    return _socket(data_directory, "control")


@asynccontextmanager
async def pointer(data_directory: Path, socket: Path) -> AsyncIterator[None]:
    """Tells clients where the control socket is, for as long as it is open."""
    path = data_directory / POINTER_FILE
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({"socket": str(socket), "pid": os.getpid(), "version": __version__}))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _make_data_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            f"the data directory {path} cannot be written ({error.strerror}); choose another with --data-dir"
        ) from None


async def _open_index(data_directory: Path) -> Database:
    """The index; made from the folders when it is missing."""
    path = data_directory / "index.sqlite"
    is_new = not path.exists()
    await asyncio.to_thread(migrate.migrate, path, "index")
    database = Database(path)
    if is_new:
        for entry in await asyncio.to_thread(index.find_folders, data_directory):
            await database.write(lambda c, entry=entry: index.put(c, entry))  # type: ignore[misc]
    return database


@asynccontextmanager
async def _keeper(data_directory: Path) -> AsyncIterator[Keeper]:
    process = LocalKeeper(data_directory / "keeper", _socket(data_directory, "keeper"))
    keeper = Keeper(process.connect)
    task = asyncio.create_task(keeper.run(), name="keeper")
    try:
        yield keeper
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _socket(data_directory: Path, kind: str) -> Path:
    """In the runtime directory: paths of Unix sockets end at 107 bytes, data directories do not."""
    digest = hashlib.sha256(str(data_directory).encode()).hexdigest()[:16]
    return runtime_directory(os.environ) / f"{digest}-{kind}.sock"
