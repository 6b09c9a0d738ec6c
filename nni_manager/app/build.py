"""Builds the daemon in order, and shuts it down in reverse order: listeners, loops, keeper, store, lock."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from nni_manager.app import identity, index_file
from nni_manager.app.listening import reserves
from nni_manager.client.address import POINTER_FILE
from nni_manager.client.data_directory import LOCK, make_data_directory
from nni_manager.config.settings import Settings, runtime_directory
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import AlreadyOwned, InvalidInput, StoreUnavailable
from nni_manager.machines.keeper import machines
from nni_manager.machines.keeper.local_process import LocalKeeper, connected
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.leftovers import Leftovers
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.scheduler.experiments.submission import Endpoints
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.scheduler.tensorboard import folders
from nni_manager.scheduler.turns.trial_listener import TrialListener
from nni_manager.store.database import Database
from nni_manager.store.folder import Ownership
from nni_manager.store.index import index, stored_identity
from trial_runner.wire import full_disks

log = logging.getLogger(__name__)

#: Seconds to wait for the end of a keeper without jobs.
_KEEPER_END_S = 0.5


@asynccontextmanager
async def ownership(data_directory: Path, *, wait_for_lock_s: float = 0) -> AsyncIterator[Ownership]:
    """The lock on the data directory, which is created if missing.

    Raises AlreadyOwned, InvalidInput or StoreUnavailable.
    """
    _make_data_directory(data_directory)
    lock = await _lock(data_directory, wait_for_lock_s)
    try:
        (data_directory / POINTER_FILE).unlink(missing_ok=True)  # in a copy, it points to the original's daemon
        yield lock
    finally:
        lock.release()


@asynccontextmanager
async def experiments(
    settings: Settings, trial_listener: TrialListener, endpoints: Endpoints, warnings: DaemonWarnings
) -> AsyncIterator[tuple[Supervisor, ExperimentCommands]]:
    """Everything except the listeners, for the owner of the data directory.

    Raises InvalidInput or StoreError before anything was started.
    """
    async with AsyncExitStack() as stack:
        path = await asyncio.to_thread(_prepare_index, settings.data_dir)
        index_database = Database(path, is_durable=True, restore=partial(index_file.restore, path))
        stack.push_async_callback(index_database.close)
        await index_file.finish_half_done(index_database, settings.data_dir)
        process = LocalKeeper(settings.data_dir / "keeper", socket_path(settings.data_dir, "keeper"))
        if await asyncio.to_thread(identity.original_of, settings.data_dir) is not None:
            # first, so that an interrupted start finds the same state next time
            await asyncio.to_thread(_disown, process, settings.data_dir)
        name = await _identity(settings.data_dir, index_database)
        keeper = await stack.enter_async_context(connected(process))
        connections = Connections(name, partial(identity.place, settings.data_dir, secrets.token_hex(8)))
        connections.offer(machines.LOCAL, lambda: KeeperConnection(keeper, connections.shared_object(Places)))
        left = Leftovers(index_database, connections, settings.data_dir)
        await left.load()
        stack.push_async_callback(left.close)
        shared = SharedParts(
            settings=settings,
            keeper=keeper,
            connections=connections,
            trial_listener=trial_listener,
            endpoints=endpoints,
            clock=now_ms,
            warnings=warnings,
            leftovers=left,
            former_identities=await asyncio.to_thread(_former_identities, settings.data_dir),
        )
        supervisor = Supervisor(index_database, shared)
        await stack.enter_async_context(supervisor.running())
        commands = ExperimentCommands(supervisor)
        stack.push_async_callback(commands.provenance.close)
        stack.push_async_callback(commands.half_deleted.close)
        await asyncio.to_thread(folders.clear_links, settings.data_dir)
        stack.push_async_callback(commands.tensorboards.close)
        yield supervisor, commands
        if not supervisor.open_ids and not supervisor.not_opened:
            # a keeper without jobs: a command that waits for the daemon's end waits for the keeper's, too
            await process.ended(within_s=_KEEPER_END_S)


async def _identity(data_directory: Path, index_database: Database) -> str:
    """The name of the data directory, also stored in the index. Raises OSError or StoreError."""
    has_open = any(entry.is_open for entry in await index_database.read(index.all_entries))
    had_name = (data_directory / "keeper").is_dir()  # unlike a new directory with restored experiments
    if had_name and not has_open and identity.known(data_directory) == identity.NOBODY:  # the index may be lost, too
        has_open = await asyncio.to_thread(index_file.has_open_folder, data_directory)
    name = await asyncio.to_thread(identity.of, data_directory, has_open=has_open)
    await index_database.write(lambda c: stored_identity.put(c, name))
    return name


def _former_identities(data_directory: Path) -> frozenset[str]:
    """Former names of this data directory, including the empty one unless the current name was lost."""
    unnamed = frozenset() if identity.is_lost(data_directory) else frozenset({""})
    return identity.former(data_directory) | unnamed


def _disown(keeper: LocalKeeper, data_directory: Path) -> None:
    """Remove the keeper's folder of a copied data directory. Raises InvalidInput."""
    try:
        keeper.disown()
    except OSError as error:
        raise InvalidInput(
            f"{data_directory} is a copy, and its folder keeper belongs to the original's trials. The folder cannot be"
            f" removed ({error}): remove it, and start again"
        ) from error


def _prepare_index(data_directory: Path) -> Path:
    """Prepare the index; on a full disk, use the space that an earlier daemon reserved. Raises StoreError."""
    try:
        # first: a new index reads the name from its file
        identity.restore(data_directory, *index_file.identity_of(data_directory))
        path = index_file.prepare(data_directory)
    except StoreUnavailable as error:
        if not reserves.spend_room(data_directory):
            raise
        log.error("%s; the reserved space is now used: free disk space", error)
        return index_file.prepare(data_directory)
    reserves.keep_room(data_directory)
    return path


def _make_data_directory(path: Path) -> None:
    try:
        make_data_directory(path)
        probe = path / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = full_disks.reason(error, path)
        raise InvalidInput(
            f"the data directory {path} cannot be written ({reason}); choose another with --data-dir"
        ) from None


async def _lock(data_directory: Path, wait_s: float) -> Ownership:
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        try:
            return Ownership(data_directory / LOCK, f"the data directory {data_directory}")
        except AlreadyOwned as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise AlreadyOwned(
                    f"{error}; `nni-manager status` shows it, `nni-manager stop` ends it while its trials keep running,"
                    " and `--data-dir` selects another directory"
                ) from None
            await asyncio.sleep(0.05)
        except OSError as error:
            raise StoreUnavailable(f"{data_directory / LOCK} cannot be written ({full_disks.reason(error)})") from error


def socket_path(data_directory: Path, kind: str) -> Path:
    """The path of a socket of a data directory. `kind`: ``control`` or ``keeper``.

    It is in the runtime directory, because the path of a Unix socket has at most 107 bytes.
    """
    digest = hashlib.sha256(str(data_directory).encode()).hexdigest()[:16]
    return runtime_directory(os.environ) / f"{digest}-{kind}.sock"
