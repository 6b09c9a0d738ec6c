"""The database writes of commands, which may run twice, and changes of training services: read, preflight,
store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nni_manager.config import admission, service_change
from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.errors import Conflict, NotFound
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, PlatformSpec
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import Parameters
from nni_manager.domain.text import require_texts
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment, removed
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.scheduler.planning.experiment_status import room
from nni_manager.store import private
from nni_manager.store.experiment import experiments, services, trials
from nni_manager.store.folder import Folder


def change(connection: sqlite3.Connection, before: ExperimentSpec, after: ExperimentSpec, now_ms: int) -> None:
    """Stores a changed config, and continues a DONE experiment if the change allows more trials."""
    experiments.set_config(connection, json.dumps(after.canonical))
    continue_if_done(connection, before, after, now_ms)


def continue_if_done(
    connection: sqlite3.Connection, before: ExperimentSpec, after: ExperimentSpec, now_ms: int
) -> None:
    """Continues a DONE experiment if the change allows more trials."""
    row = experiments.load(connection)
    had_room, has_room = (room(spec, row, row.exec_ms) > 0 for spec in (before, after))
    is_news = not had_room or after.search_space != before.search_space  # otherwise the tuner was exhausted
    if row.status is ExperimentStatus.DONE and has_room and is_news:
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)


def add_trial(
    connection: sqlite3.Connection, parameters: Parameters, most: int | None, now_ms: int, repeats: str = ""
) -> dict[str, Any]:
    """Stores a trial with a user's parameters. Raises Conflict if no trial may start, NotFound if the trial `repeats`
    does not exist."""
    if repeats and trials.status(connection, repeats) is None:
        raise NotFound(f"cannot find trial {repeats} to repeat")
    row = experiments.load(connection)
    if row.status in (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED):
        raise Conflict(f"experiment {row.id} is being stopped; continue it with `nnictl resume {row.id}`")
    if most is not None and row.next_sequence_id >= most:
        raise Conflict(f"maxTrialNumber ({most}) is reached; raise it first")
    (id_,) = trials.fresh_ids(connection, 1)
    sequence_id = trials.add(
        connection,
        id=id_,
        parameter_id=parameters.parameter_id,
        record=parameters.record(),
        wait_code=WaitCode.CONCURRENCY,
        wait_sentence="waits for a free slot",
        now_ms=now_ms,
        repeats=repeats,
    )
    return {"id": id_, "sequenceId": sequence_id}


def kill(connection: sqlite3.Connection, trial_id: str) -> None:
    """Stores the stop request for a trial. Raises NotFound."""
    if trials.status(connection, trial_id) is None:
        raise NotFound(f"cannot find trial {trial_id}")
    trials.request_stop(connection, trial_id, StopRequest.USER)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedChange:
    """A checked change of services. `changed`: services that are new or have other settings."""

    spec: ExperimentSpec
    changed: tuple[PlatformSpec, ...]
    #: Reference → value, of new secrets.
    secrets: Mapping[str, str] = field(repr=False)
    #: Stop the trials on removed services.
    now: bool


async def read_service_change(
    experiment: OpenExperiment, spec: ExperimentSpec, wish: ServiceChange, shared: SharedParts
) -> CheckedChange:
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
    return CheckedChange(spec=reading.spec, changed=changed, secrets=reading.secrets, now=wish.now)


def write_service_change(connection: sqlite3.Connection, folder: Folder, change: CheckedChange) -> None:
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
