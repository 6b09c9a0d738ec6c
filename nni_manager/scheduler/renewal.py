"""Secrets of an experiment that are given anew, in its own database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from nni_manager.config import credentials, experiment_file
from nni_manager.domain.experiment import HoldCode, PlatformSpec
from nni_manager.store import experiments, secrets, services
from nni_manager.store.services import ServiceRow


def removed(known: Mapping[str, ServiceRow]) -> tuple[PlatformSpec, ...]:
    """Services that the config has no more; attempts of theirs may be open."""
    gone = [row for row in known.values() if row.is_removed and "platform" in row.settings]
    return tuple(PlatformSpec(name=row.settings["platform"], service=row.name, settings=row.settings) for row in gone)


def renew(connection: sqlite3.Connection, values: Mapping[str, str]) -> dict[str, str]:
    """Answers all that are known now; a hold for refused ones is cleared.

    Raises InvalidInput for one that is none of the experiment's.
    """
    row = experiments.load(connection)
    known = services.load(connection)
    credentials.require_known(experiment_file.from_canonical(json.loads(row.config)), values, removed(known))
    secrets.put(connection, values)
    for name, service in known.items():
        if service.hold is not None and service.hold.code is HoldCode.BAD_CREDENTIALS:
            services.set_hold(connection, name, None)
    if row.hold is not None and row.hold.code is HoldCode.BAD_CREDENTIALS:
        experiments.set_hold(connection, None)
    return secrets.load(connection)
