"""A local copy of the runners' files on the workspace's storage, which `pull` reads.

Only files that grew are copied. The runner's final report is copied last, after the files that it refers to.

Azure ML uploads an output file when it is closed. The runner therefore copies files that are open into pieces::

    ATTEMPT/stdout                       the whole file, after the command has ended
    ATTEMPT/pieces/CONTAINER/stdout/N    while it runs: PIECE_BYTES from offset N * PIECE_BYTES
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nni_manager.domain.errors import PlatformError
from nni_manager.platform_kit.payload import write_private
from nni_manager.platform_kit.tasks import happened
from nni_manager.platforms.aml.assets import Blobs
from trial_runner import protocol
from trial_runner.wire.outbox_files import is_outbox

_PREFIX = f"{protocol.PIECES_FOLDER}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile:
    """A log or an outbox. `whole`: size in bytes of the complete upload; None: not uploaded yet."""

    name: str
    whole: int | None
    #: Number of a piece → (its name, its size in bytes).
    pieces: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of bytes that can be read."""
        ends = (number * protocol.PIECE_BYTES + size for number, (_, size) in self.pieces.items())
        return max(self.whole or 0, *ends, 0)

    def source(self, start: int) -> tuple[str, int] | None:
        """The blob that contains the byte `start`, and the offset in it; None: there is none."""
        if start < (self.whole or 0):
            return self.name, start
        number, offset = divmod(start, protocol.PIECE_BYTES)
        name, size = self.pieces.get(number, ("", 0))
        return (name, offset) if offset < size else None


def container_in(registration: bytes) -> str:
    """The container id in a registration; empty: it has none."""
    try:
        found = json.loads(registration).get("container")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def pieces_of(sizes: Mapping[str, int], container: str) -> dict[str, dict[int, tuple[str, int]]]:
    """The pieces of each file of a container."""
    found: dict[str, dict[int, tuple[str, int]]] = {}
    prefix = f"{_PREFIX}{container}/"
    for blob, size in sizes.items():
        if container and blob.startswith(prefix):
            name, _, number = blob.removeprefix(prefix).rpartition("/")
            if number.isascii() and number.isdigit():
                found.setdefault(name, {})[int(number)] = (blob, size)
    return found


log = logging.getLogger(__name__)

#: Seconds between two checks of an attempt: while files change, and at most.
SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 15.0
_GROWTH = 1.5
#: Bytes per read, and maximum size of a runner's report.
_PIECE_BYTES = 8 * 2**20
_REPORT_BYTES = 2**20


#: The end of a copy that reached the limit.
_TOO_LONG = "\n[nni_manager: this log exceeds maxLogSize; the complete log is {} on the workspace's storage]\n"


@dataclass(slots=True, kw_only=True)
class _MirroredJob:
    #: Prefix of its blobs' names, with a trailing slash.
    prefix: str
    folder: Path
    next_at: float
    wait_s: float = SHORTEST_WAIT_S
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Mirror:
    """The mirror of one experiment's runners. `run` copies until it is cancelled; `sync` copies at once."""

    def __init__(self, blobs: Blobs, most_log_bytes: int) -> None:
        """`most_log_bytes`: limit for the copy of each log; the rest stays on the workspace's storage."""
        self._blobs = blobs
        self._most_log_bytes = most_log_bytes
        self._attempts: dict[str, _MirroredJob] = {}
        self._news = asyncio.Event()

    def follow(self, job_name: str, prefix: str, folder: Path) -> None:
        """Starts copying the files of a job. Idempotent."""
        if job_name not in self._attempts:
            now = asyncio.get_running_loop().time()
            self._attempts[job_name] = _MirroredJob(prefix=f"{prefix}/", folder=folder, next_at=now)
            self._news.set()

    def hurry(self, job_name: str) -> None:
        """Reads the files of an ended job now, and again soon."""
        if (attempt := self._attempts.get(job_name)) is not None:
            attempt.next_at, attempt.wait_s = asyncio.get_running_loop().time(), SHORTEST_WAIT_S
            self._news.set()

    def forget(self, job_name: str) -> None:
        attempt = self._attempts.pop(job_name, None)
        if attempt is not None:
            shutil.rmtree(attempt.folder, ignore_errors=True)

    async def run(self) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            due = [name for name, attempt in self._attempts.items() if attempt.next_at <= now]
            await asyncio.gather(*map(self._look, due))
            next_at = min((attempt.next_at for attempt in self._attempts.values()), default=None)
            await happened(self._news, asyncio.timeout_at(next_at))
            self._news.clear()

    async def _look(self, job_name: str) -> None:
        attempt = self._attempts.get(job_name)
        if attempt is None:
            return  # forgotten meanwhile
        try:
            has_news = await self.sync(job_name)
        except (PlatformError, OSError) as error:
            log.warning("files of job %s on the workspace's storage cannot be read now: %s", job_name, error)
            has_news = False
        attempt.wait_s = SHORTEST_WAIT_S if has_news else min(LONGEST_WAIT_S, _GROWTH * attempt.wait_s)
        attempt.next_at = asyncio.get_running_loop().time() + attempt.wait_s

    async def sync(self, job_name: str) -> bool:
        """Copies new parts of a job's files; returns whether there were any. Ignores jobs that are not followed.

        Raises PlatformError and OSError.
        """
        attempt = self._attempts.get(job_name)
        if attempt is None:
            return False
        async with attempt.looking:
            sizes = await self._blobs.sizes(attempt.prefix)
            named = {name.removeprefix(attempt.prefix): size for name, size in sizes.items()}
            registered = await self._take_registration(attempt, named)
            held = pieces_of(named, await asyncio.to_thread(_container, attempt.folder))
            names = [name for name in sorted({*named, *held}) if _is_read(name)]
            files = [HeldFile(name=name, whole=named.get(name), pieces=held.get(name, {})) for name in names]
            grown = [await self._take(attempt, file) for file in files]
            ended = await self._take_end(attempt, named.get(protocol.EXIT_FILE))
            return registered or ended or any(grown)

    async def _take_registration(self, attempt: _MirroredJob, sizes: Mapping[str, int]) -> bool:
        """Copies a new registration. A new container's files are read from the beginning: the old ones may have been
        longer."""
        known = await asyncio.to_thread(_container, attempt.folder)
        is_another = any(name.split("/")[1] != known for name in sizes if name.startswith(_PREFIX))
        if not is_another and not _is_new(attempt.folder / protocol.RUNNER_FILE, sizes.get(protocol.RUNNER_FILE)):
            return False
        data = await self._blobs.read(attempt.prefix + protocol.RUNNER_FILE, 0, _REPORT_BYTES)
        if known and container_in(data) not in ("", known):
            await asyncio.to_thread(shutil.rmtree, attempt.folder, ignore_errors=True)
        elif known and is_another:
            return False  # pieces of an earlier container
        if data:
            await asyncio.to_thread(write_private, attempt.folder / protocol.RUNNER_FILE, data)
        return bool(data)

    async def _take(self, attempt: _MirroredJob, file: HeldFile) -> bool:
        path = attempt.folder / file.name
        have = path.stat().st_size if path.exists() else 0
        if file.size <= have and path.exists():
            return False
        is_log = file.name in protocol.LOG_FILES
        most = min(file.size, self._most_log_bytes) if is_log else file.size
        if have > most:
            return False  # the copy ends with _TOO_LONG
        await asyncio.to_thread(_append, path, b"")
        while have < most and (source := file.source(have)) is not None:
            blob, start = source
            piece = await self._blobs.read(attempt.prefix + blob, start, min(_PIECE_BYTES, most - have))
            if not piece:
                break  # deleted meanwhile
            await asyncio.to_thread(_append, path, piece)
            have += len(piece)
        if have == most < file.size:
            await asyncio.to_thread(_append, path, _TOO_LONG.format(attempt.prefix + file.name).encode())
        return True

    async def _take_end(self, attempt: _MirroredJob, size: int | None) -> bool:
        path = attempt.folder / protocol.EXIT_FILE
        if not _is_new(path, size):
            return False
        await asyncio.to_thread(
            write_private, path, await self._blobs.read(attempt.prefix + path.name, 0, _REPORT_BYTES)
        )
        return True


def _is_new(path: Path, size: int | None) -> bool:
    """Whether a report of `size` bytes differs from the copied one. None: the report is missing."""
    return size is not None and not (path.exists() and path.stat().st_size == size)


def _container(folder: Path) -> str:
    """The container of the copied registration; empty: nothing was copied."""
    try:
        return container_in((folder / protocol.RUNNER_FILE).read_bytes())
    except OSError:
        return ""


def _is_read(name: str) -> bool:
    """Whether runners write files of this name, and the name stays inside its folder."""
    is_plain = all(part not in ("", ".", "..") for part in PurePosixPath(name).parts) and not name.startswith("/")
    return is_plain and (name in protocol.LOG_FILES or is_outbox(name))


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
