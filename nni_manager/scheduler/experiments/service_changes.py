"""Changes the training services of an open experiment: read, preflight, store, apply."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nni_manager.config import admission, service_change
from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.domain.text import require_texts
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment, removed
from nni_manager.store import private
from nni_manager.store.experiment import experiments, services, trials
from nni_manager.store.folder import Folder

if TYPE_CHECKING:
    from nni_manager.scheduler.experiments.shared_parts import SharedParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A checked change of services. `changed`: services that are new or have other settings."""

    spec: ExperimentSpec
    changed: tuple[PlatformSpec, ...]
    #: Reference → value, of new secrets.
    secrets: Mapping[str, str] = field(repr=False)
    #: Stop the trials on removed services.
    now: bool


async def read(experiment: OpenExperiment, spec: ExperimentSpec, wish: ServiceChange, shared: SharedParts) -> Change:
    """`spec`: the present one, with other changes. Raises InvalidInput, ConfigInvalid, or OSError for its code."""
    texts = {"trainingService": wish.sections, "directory": wish.directory}
    require_texts({**texts, "secrets": dict(wish.secrets)})
    known = await experiment.database.read(services.load)
    kept = await asyncio.to_thread(private.load, experiment.folder.private)
    stored = kept.secrets
    gone = {service.service: service.settings for service in removed(known)}
    reading = await asyncio.to_thread(service_change.read, spec, wish, gone, stored)
    admission.check_platforms(reading.spec)
    changed = service_change.changed_services(spec, reading.spec)
    folder, values = experiment.folder, {**stored, **reading.secrets}
    asked = service_change.services_to_ask(spec, reading.spec)
    asking = replace(reading.spec, platforms=asked)
    found = await preflight.look(asking, values, shared.connections, folder, kept.environment)
    preflight.warn(found, shared.warnings, experiment.id)
    return Change(spec=reading.spec, changed=changed, secrets=reading.secrets, now=wish.now)


def write(connection: sqlite3.Connection, folder: Folder, change: Change) -> None:
    """Stores the change; clears the holds of services with new settings."""
    if change.secrets:
        private.put(folder.private, change.secrets)  # first: unused secrets are harmless, missing ones are not
    experiments.set_config(connection, json.dumps(change.spec.canonical))
    for platform in change.spec.platforms:
        services.put(connection, platform.service, platform.settings)
    for platform in change.changed:
        services.set_hold(connection, platform.service, None)
    names = {platform.service for platform in change.spec.platforms}
    services.remove_others(connection, names)
    if change.now:
        trials.request_stop_elsewhere(connection, names, StopRequest.USER)


async def apply(experiment: OpenExperiment, change: Change) -> None:
    """Applies the services that `write` has stored."""
    kept = await asyncio.to_thread(private.load, experiment.folder.private)
    experiment.apply_services(change.spec, kept)
