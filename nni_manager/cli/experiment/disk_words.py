"""What commands say of disks. It is told where the manager can tell it; no command depends on it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nni_manager.client.formats import size
from nni_manager.domain.errors import NniManagerError

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Seconds for all sizes of a list; those that are not told within are left out.
_PATIENCE_S = 30.0
_PARTS = ("trials", "database", "checkpoints", "code")


def warnings(client: ManagerClient) -> list[str]:
    """The warning of a disk that is nearly full; empty where the manager cannot tell."""
    try:
        return [text for text in [client.disk()["warning"]] if text]
    except NniManagerError:  # the disk does not answer, or the manager is of an earlier version
        return []


def use(client: ManagerClient, id: str) -> dict[str, Any] | None:
    """What an experiment takes, as the API tells it; None: not known."""
    try:
        return client.disk_use(id)
    except NniManagerError:
        return None


def facts(found: dict[str, Any] | None) -> dict[str, str]:
    if found is None:
        return {"on disk": "not known: its folder is large, its disk does not answer, or the manager is an earlier one"}
    named = ", ".join(f"{name} {size(found[name])}" for name in _PARTS if found[name])
    return {"on disk": f"{size(found['total'])} in {found['files']} files" + (f" ({named})" if named else "")}


def totals(client: ManagerClient, ids: Iterable[str]) -> list[int | None]:
    """Bytes of each experiment; None: not known."""
    until_s, found = time.monotonic() + _PATIENCE_S, []
    for id_ in ids:
        told = use(client, id_) if time.monotonic() < until_s else None
        found.append(None if told is None else int(told["total"]))
    return found


def total(sizes: Sequence[int | None]) -> str:
    """``3.4 MB``, and how many are not in it."""
    known = [one for one in sizes if one is not None]
    missing = len(sizes) - len(known)
    return size(sum(known)) + (f" and {missing} of unknown size" if missing else "")
