"""The database writes of commands. Each may run twice."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from nni_manager.domain.errors import Conflict, NotFound
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import Parameters
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.planning.experiment_status import room
from nni_manager.store.experiment import experiments, trials


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
    is_news = not had_room or after.search_space != before.search_space  # else the tuner had nothing more
    if row.status is ExperimentStatus.DONE and has_room and is_news:
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)


def stop(connection: sqlite3.Connection, now_ms: int) -> None:
    """Sets the status STOPPING."""
    experiments.set_status(connection, ExperimentStatus.STOPPING, now_ms)


def add_trial(
    connection: sqlite3.Connection, parameters: Parameters, most: int | None, now_ms: int, repeats: str = ""
) -> dict[str, Any]:
    """Stores a trial with a user's parameters. Raises Conflict if no trial may start any more, NotFound if there is no
    trial `repeats`."""
    if repeats and trials.status(connection, repeats) is None:
        raise NotFound(f"there is no trial {repeats} to repeat")
    row = experiments.load(connection)
    if row.status in (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED):
        raise Conflict(f"experiment {row.id} is being stopped; `nnictl resume {row.id}` goes on with it")
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
        raise NotFound(f"there is no trial {trial_id}")
    trials.request_stop(connection, trial_id, StopRequest.USER)
