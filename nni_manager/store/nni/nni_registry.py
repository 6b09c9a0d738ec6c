"""NNI's own list of experiments, ``~/nni-experiments/.experiment``: a JSON object, id → entry.

NNI's tools find experiments there. All managers and tools of a user write this file in place, so foreign entries are
kept unchanged, and a file that is being written does not count as empty. Writers exclude each other by files named
``.experiment.lock.<process>``; one older than two seconds is stale.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.index.index import Entry

Entries = dict[str, Any]
Url = Callable[[Endpoint], str]

#: Seconds after which a lock, or a file without content, is stale.
_STALE_S = 2.0


class RegistryBusy(Exception):
    """Another process writes the file; try again in a moment."""


def default_path() -> Path | None:
    """The registry in the home folder. None: this user has no home folder."""
    path = os.path.expanduser("~/nni-experiments/.experiment")
    return Path(path) if os.path.isabs(path) else None


def describe(entry: Entry, *, service_port: int | None, url: Url) -> dict[str, Any]:
    """An entry in NNI's format, without a process id. `service_port`: None: the daemon has no port."""
    launched_ms = entry.created_ms if entry.launched_ms is None else entry.launched_ms
    return {
        "id": entry.id,
        "startTime": launched_ms,
        "endTime": "N/A" if entry.ended_ms is None else entry.ended_ms,
        "status": str(entry.status),
        "platform": entry.platform,
        "experimentName": entry.name,
        "tag": [],
        "logDir": str(entry.folder.path.parent),
        **_place(entry, service_port, url),
    }


def _place(entry: Entry, service_port: int | None, url: Url) -> dict[str, Any]:
    """The address of an experiment: its endpoint, or its path on the daemon; empty for a stopped one."""
    if entry.status is ExperimentStatus.STOPPED:
        return {"prefixUrl": None, "webuiUrl": []}
    endpoint = entry.endpoint
    if endpoint is None and service_port is not None:
        endpoint = Endpoint(port=service_port, prefix=f"experiments/{entry.id}")
    if endpoint is None:
        return {"port": None, "prefixUrl": None, "webuiUrl": []}
    return {"port": endpoint.port, "prefixUrl": endpoint.prefix or None, "webuiUrl": [url(endpoint).rstrip("/")]}


def read(path: Path) -> Entries:
    """All entries; empty if the file does not exist. Raises RegistryBusy for an incomplete one, OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise RegistryBusy(f"{path} is not UTF-8 text; repair it, or move it away") from None
    if not text.strip() and _age_s(path) > _STALE_S:
        return {}
    try:
        entries = json.loads(text)
    except ValueError:
        raise RegistryBusy(f"{path} is incomplete; repair it, or move it away") from None
    if not isinstance(entries, dict):
        raise RegistryBusy(f"{path} does not contain a JSON object; repair it, or move it away")
    return entries


def identity(path: Path) -> tuple[int, ...]:
    """Identity of the file's content, which every write by any process changes. Empty: no such file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def update(path: Path, change: Callable[[Entries], None]) -> bool:
    """Applies `change` to the entries; returns whether they changed. Does not wait for other writers.

    Readers see the old file or the new one. Raises RegistryBusy, OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = Path(os.path.realpath(path))  # a link stays a link
    with _lock(path):
        entries = read(real)
        before = json.dumps(entries)
        change(entries)
        if json.dumps(entries) == before:
            return False
        _replace(real, json.dumps(entries, indent=4))
        return True


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    own = path.with_name(f"{path.name}.lock.{os.getpid()}")
    _require_free(path, own)
    if _is_left_behind(own):
        own.unlink(missing_ok=True)  # of a process that had our process id
    try:
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise RegistryBusy(f"{own} is there") from None
    try:
        _require_free(path, own)  # two may have checked at once: both give up, and retry at different times
        yield
    finally:
        own.unlink(missing_ok=True)


def _require_free(path: Path, own: Path) -> None:
    for lock in path.parent.glob(f"{path.name}.lock.*"):
        if lock != own and not _is_left_behind(lock):
            raise RegistryBusy(f"{lock} is there")


def _is_left_behind(lock: Path) -> bool:
    return _age_s(lock) > _STALE_S


def _age_s(path: Path) -> float:
    """The age of a file in seconds; 0 for one that is gone."""
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime
    return 0.0


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        if path.exists():
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
