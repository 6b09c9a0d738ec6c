"""What an experiment that nobody works on (any more) has left on its training services, from its own database."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from nni_manager.config import credentials
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.store import experiments, jobs, secrets, services, stored_config
from nni_manager.store.connection import connect_readonly
from nni_manager.store.index import Entry
from nni_manager.store.leftover_jobs import LeftoverJobs

log = logging.getLogger(__name__)


def read(
    connection: sqlite3.Connection, now_ms: int, *, sentence: str = "", running: bool = False
) -> list[LeftoverJobs]:
    """By service, those of which it is not known that nothing is left; `running`: only those that may still run.

    `sentence`: why they could not be ended, where nothing better is known.
    """
    row = experiments.load(connection)
    names = jobs.left(connection, running=running)
    sections = _sections(connection, stored_config.services(json.loads(row.config))) if names else {}
    values = secrets.load(connection) if names else {}
    return [
        _left(row.id, name, sections.get(name, {}), values, found, sentence, now_ms) for name, found in names.items()
    ]


def of_closed(entry: Entry, now_ms: int, sentence: str) -> list[LeftoverJobs]:
    """Of one that cannot be opened; where its database cannot be read, all that is found by its id. Blocks."""
    try:
        with closing(connect_readonly(entry.folder.require_database())) as connection:
            return read(connection, now_ms, sentence=sentence)
    except (NniManagerError, sqlite3.Error, OSError, ValueError) as error:
        log.warning("what experiment %s left is looked for by its id: %s", entry.id, error)
    platforms = filter(None, entry.platform.split(","))
    return [
        _left(entry.id, service, {"platform": platform}, {}, (), sentence, now_ms)
        for service, platform in zip(_names(entry), platforms, strict=False)
    ]


def files_of(entry: Entry, now_ms: int, sentence: str) -> list[LeftoverJobs]:
    """What stays on services that keep more than jobs, of one whose jobs are all forgotten. Blocks."""
    try:
        with closing(connect_readonly(entry.folder.require_database())) as connection:
            row, used = experiments.load(connection), jobs.services_used(connection)
            sections = _sections(connection, stored_config.services(json.loads(row.config)))
            values = secrets.load(connection)
            return [
                _left(row.id, name, sections[name], values, (), sentence, now_ms)
                for name in used
                if name in sections and _leaves_files(name, sections[name], values)
            ]
    except (NniManagerError, sqlite3.Error, OSError, ValueError) as error:
        log.warning("what experiment %s left cannot be looked for: %s", entry.id, error)
        return []


def _leaves_files(service: str, section: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    spec = PlatformSpec(name=str(section.get("platform", service)), service=service, settings=section)
    try:
        adapter = registry.adapter_of(spec)
        return adapter.capabilities_for(credentials.filled(spec, values)).leaves_files
    except (NniManagerError, ValueError, KeyError):
        return False


def _names(entry: Entry) -> list[str]:
    return list(stored_config.services({"trainingService": [{"platform": one} for one in entry.platform.split(",")]}))


def _sections(
    connection: sqlite3.Connection, configured: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Those that the config has no more, too."""
    return {name: row.settings for name, row in services.load(connection).items()} | dict(configured)


def _left(
    id: str, service: str, section: Mapping[str, Any], values: Mapping[str, str], names: tuple[str, ...],
    sentence: str, now_ms: int,
) -> LeftoverJobs:  # fmt: skip
    platform = str(section.get("platform", service))
    spec = PlatformSpec(name=platform, service=service, settings=section)
    return LeftoverJobs(
        experiment_id=id, service=service, platform=platform, connection=_connection_key(spec, values),
        section=section, secrets=values, job_names=names, sentence=sentence, noted_ms=now_ms,
    )  # fmt: skip


def _connection_key(service: PlatformSpec, values: Mapping[str, str]) -> str:
    """The platform's name where its adapter, or the section, is not there any more."""
    try:
        return registry.adapter_of(service).connection_key(credentials.filled(service, values))
    except (NniManagerError, ValueError, KeyError):
        return service.name
