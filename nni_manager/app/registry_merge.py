"""What NNI's list of experiments should say where it says something already, of ours or of other managers' ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.nni_registry import Entries

#: NNI's manager begins at most so long after the time that its launcher notes, in milliseconds.
_LAUNCH_MS = 60_000


def merge(
    entries: Entries, wanted: Mapping[str, dict[str, Any]], gone: set[str], own: Mapping[str, int | None]
) -> None:
    """Ours are exchanged, but for tags that somebody gave them; all others stay as they are.

    `own`: the processes that we named there.
    """
    for id in gone:
        entries.pop(id, None)
    for id, entry in wanted.items():
        known = entries.get(id)
        known = known if isinstance(known, dict) else {}
        is_ours = known.get("pid") is not None and known["pid"] in (own.get(id), os.getpid())
        if not is_ours and (_is_elsewhere(known, entry) or (id not in entries and _is_removed(entry))):
            continue
        tag = known.get("tag")
        entries[id] = {**entry, "tag": tag} if isinstance(tag, list) else entry


def without_folder(entries: Entries, data_directory: Path) -> set[str]:
    """Entries below our data directory that nothing lies behind."""
    ours = {
        id for id, entry in entries.items() if isinstance(entry, dict) and entry.get("logDir") == str(data_directory)
    }
    return {id for id in ours if not (data_directory / id).exists()}


def _is_removed(entry: Mapping[str, Any]) -> bool:
    """NNI's `delete` takes a stopped experiment's folder first, and then its entry, of which it is not to come back."""
    return entry["status"] == ExperimentStatus.STOPPED and not (Path(entry["logDir"]) / entry["id"]).exists()


def _is_elsewhere(known: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """At work under another manager: a copy in another folder, or, stopped for us, one that NNI itself still runs."""
    if known.get("status") in (None, "STOPPED"):
        return False
    if entry["status"] != ExperimentStatus.STOPPED:  # two at work: the first one's stays, or they write for ever
        pid = known.get("pid")
        return known.get("logDir") != entry["logDir"] and isinstance(pid, int) and Path(f"/proc/{pid}").exists()
    return known.get("logDir") != entry["logDir"] or _is_alive(known)


def _is_alive(known: Mapping[str, Any]) -> bool:
    """Whether the process that runs it is there, and not a later one that has its number."""
    pid, launched_ms = known.get("pid"), known.get("startTime")
    if not isinstance(pid, int) or not isinstance(launched_ms, int):
        return False
    import psutil

    try:
        return psutil.Process(pid).create_time() * 1000 < launched_ms + _LAUNCH_MS
    except (psutil.Error, ValueError):
        return False
