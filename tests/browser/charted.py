"""An experiment with a given number of trials, written directly to its database."""

from __future__ import annotations

import asyncio
import json
import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.ids import job_name
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.folder import Folder
from tests.api.world import CREATED_MS, World

SPACE = {
    "rate": {"_type": "loguniform", "_value": [1e-5, 0.1]},
    "dropout": {"_type": "uniform", "_value": [0, 0.6]},
    "batch_size": {"_type": "choice", "_value": [16, 32, 64, 128]},
    "optimizer": {"_type": "choice", "_value": ["adam", "sgd, plain", '<img src=x onerror="alert(1)">']},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "conv", "size": {"_type": "choice", "_value": [3, 5]}},
            {"_name": "dense", "width": {"_type": "quniform", "_value": [8, 64, 8]}},
        ],
    },
}
_STEPS = 20
_TRIAL_MS = 60_000
_AT_A_TIME = 4
#: Number of trials of `world.seed`: one per status.
SEEDED = 5


async def charted(world: World, id: str, count: int, steps: int = _STEPS) -> Folder:
    """A finished experiment with `count` trials and those of `world.seed`; 0: no trials at all.

    `steps`: number of intermediate results per trial.
    """
    classes = {"name": "Random", "classArgs": {"seed": 1, "optimize_mode": "minimize"}}
    folder = await world.add(id, status=ExperimentStatus.DONE, searchSpace=SPACE, tuner=classes)
    await asyncio.to_thread(_fill, folder, id, count, steps)
    return folder


def _fill(folder: Folder, id: str, count: int, steps: int) -> None:
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        _own_parameters(connection)
        if not count:
            for table in ("metrics", "outboxes", "attempts", "trials"):
                connection.execute(f"DELETE FROM {table}")
        rows = list(_trials(count, steps))
        connection.executemany(_INTO_TRIALS, (row["trial"] for row in rows))
        connection.executemany(_INTO_ATTEMPTS, (_attempt(id, row) for row in rows))
        connection.executemany(
            "INSERT INTO outboxes (id, trial_id, attempt, name) VALUES (?, ?, 1, 'o')", _outboxes(rows)
        )
        connection.executemany(_INTO_METRICS, (metric for row in rows for metric in _metrics(row, steps)))
        connection.execute(
            "UPDATE experiment SET revision = revision + 1, next_sequence_id = ?, ended_trials = ?",
            (count + SEEDED, count + SEEDED),
        )


_INTO_TRIALS = (
    "INSERT INTO trials (sequence_id, id, status, parameter_id, record, created_ms, started_ms, ended_ms,"
    " intermediates, last_value, final_data, final_value, end_order) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INTO_ATTEMPTS = (
    "INSERT INTO attempts (trial_id, number, job_name, service, state, place, intended_ms, started_ms, ended_ms,"
    " closed, forgotten) VALUES (?, 1, ?, 'local', 'SUCCEEDED', ?, ?, ?, ?, 1, 1)"
)
_INTO_METRICS = (
    "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value)"
    " VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)"
)


def _own_parameters(connection: sqlite3.Connection) -> None:
    """Give the trials of `world.seed` parameters of this search space."""
    draw = random.Random(3)
    for number in range(SEEDED):
        connection.execute(
            "UPDATE trials SET record = ? WHERE sequence_id = ?", (record(number, _values(draw)), number)
        )


def record(number: int, values: dict[str, Any]) -> str:
    return Parameters(parameter_id=number, source=ParameterSource.ALGORITHM, values=values).record()


def _trials(count: int, steps: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(5)
    for at in range(count):
        values = _values(draw)
        result = _result(values, draw)
        number, began = at + SEEDED, CREATED_MS + at // _AT_A_TIME * _TRIAL_MS
        status = TrialStatus.EARLY_STOPPED if at % 10 == 9 else TrialStatus.SUCCEEDED
        trial_id = f"{'cde'[number // 10_000]}{number % 10_000:04d}"
        ended = began + _TRIAL_MS - draw.randrange(20_000)
        times = (began, began, ended)
        final = (result, json.dumps(result), result, number + 1)
        yield {
            "trial": (number, trial_id, status, number, record(number, values), *times, steps, *final),
            "id": trial_id,
            "place": f"machine-{at % 2}",
            "began": began,
            "ended": ended,
        }


def _values(draw: random.Random) -> dict[str, Any]:
    layer = {"_name": "conv", "size": draw.choice([3, 5])}
    if draw.random() < 0.5:
        layer = {"_name": "dense", "width": draw.randrange(8, 65, 8)}
    return {
        "rate": 10 ** draw.uniform(-5, -1),
        "dropout": draw.uniform(0, 0.6),
        "batch_size": draw.choice(SPACE["batch_size"]["_value"]),
        "optimizer": draw.choice(SPACE["optimizer"]["_value"]),
        "layer": layer,
    }


def _result(values: dict[str, Any], draw: random.Random) -> float:
    """Lowest near a rate of 0.003 and without dropout; one in fifty is an outlier."""
    result = 0.05 + 0.05 * (math.log10(values["rate"]) + 2.5) ** 2 + 0.1 * values["dropout"] + 0.05 * draw.random()
    return result * 40 if draw.random() < 0.02 else result


def _attempt(id: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], job_name(id, row["id"], 1), row["place"], row["began"], row["began"], row["ended"]


def _outboxes(rows: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    return ((1000 + at, row["id"]) for at, row in enumerate(rows))


def _metrics(row: dict[str, Any], steps: int) -> Iterator[tuple[Any, ...]]:
    number, trial_id, final = row["trial"][0], row["id"], row["trial"][11]
    for step in range(steps):
        value = final + math.exp(-step / 4)
        stored = row["began"] + step * 1000
        yield number - SEEDED + 1000, step, trial_id, "PERIODICAL", step, stored, json.dumps(value), value
    yield number - SEEDED + 1000, steps, trial_id, "FINAL", 0, row["ended"], json.dumps(final), final
