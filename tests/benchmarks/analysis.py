"""Questions about many trials: ``python -m tests.benchmarks.analysis [1000 10000 100000]``.

Databases have 20 parameters and 50 intermediate results per trial. Questions go through the child process, as in the
daemon. Figures per question: seconds of the first answer, seconds after a filter change (median of five), bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from nni_manager.analysis.query import Query
from nni_manager.analysis.questions import QUESTIONS
from nni_manager.analysis.service import Analysis
from nni_manager.domain.ids import job_name
from nni_manager.store.connection import Connection, connect
from nni_manager.store.migrate import migrate

PARAMETERS, INTERMEDIATES = 20, 50
_SIZES = (1000, 10_000, 100_000)
_BEGAN_MS = 1_790_000_000_000
_BATCH = 1000
_RUNNING = 8
_FIELDS = {"trial": "number=17", "pair": "a=p0&b=p1"}


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or list(_SIZES)
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "nni.sqlite"
            began = time.perf_counter()
            fill(database, size)
            print(f"{size} trials filled in {time.perf_counter() - began:.1f} s, {database.stat().st_size >> 20} MB")
            asyncio.run(_measure(database))


def fill(database: Path, count: int) -> None:
    """An experiment with `count` trials: most succeeded, some failed above a value, a few run."""
    migrate(database, "experiment")
    config = json.dumps({"searchSpace": space(), "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "minimize"}}})
    with closing(connect(database)) as connection:
        connection.execute(
            "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, counted_ms, ended_trials)"
            " VALUES ('exp1', 'RUNNING', ?, 'python3', '/tmp', 0, 0, ?)",
            (config, count),
        )
        add_trials(connection, "exp1", count, running=_RUNNING)


def space() -> dict[str, Any]:
    """The search space of the trials."""
    return {f"p{number}": _dimension(number) for number in range(PARAMETERS)}


def add_trials(connection: Connection, id: str, count: int, *, running: int) -> None:
    """Add trials from number 0 on to the empty experiment `id`; the last ones are `running`."""
    draw = random.Random(0)
    for first in range(0, count, _BATCH):
        connection.execute("BEGIN IMMEDIATE")
        _add(connection, id, range(first, min(count, first + _BATCH)), count - running, draw)
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _dimension(number: int) -> dict[str, object]:
    if number % 5 == 4:
        return {"_type": "choice", "_value": ["adam", "sgd", "rmsprop"]}
    return {"_type": "loguniform", "_value": [1e-5, 1]} if number % 2 else {"_type": "uniform", "_value": [0, 1]}


def _add(connection: Connection, experiment_id: str, numbers: range, ended: int, draw: random.Random) -> None:
    """Rows in the store's format; its functions would take an hour for 100,000 trials."""
    trials, attempts, outboxes, metrics = [], [], [], []
    for number in numbers:
        id, began = f"t{number:06d}", _BEGAN_MS + 1000 * number
        values = {f"p{place}": _value(place, draw) for place in range(PARAMETERS)}
        loss = abs(float(values["p0"]) - 0.3) + 1e-3 * draw.random()
        failed, running = float(values["p2"]) > 0.95, number >= ended
        status = "RUNNING" if running else "FAILED" if failed else "SUCCEEDED"
        record = {"parameter_id": number, "parameter_source": "algorithm", "parameters": values, "parameter_index": 0}
        final = None if failed or running else loss
        key = "USER_CODE, exit code 1: ValueError: #" if failed else ""
        ended = None if running else began + 8000
        trials.append(
            (id, number, status, number, json.dumps(record), began, began, ended, INTERMEDIATES, loss)
            + (None if final is None else str(final), final, None if running else number + 1, key)
            + (("USER_CODE", "exit code 1", "ValueError: 3") if failed else ("", "", ""))
        )
        attempts.append(
            (id, job_name(experiment_id, id, 1), "RUNNING" if running else "SUCCEEDED", began, began, ended)
        )
        outboxes.append((number + 1, id))
        curve = [loss + 1 / (step + 1) for step in range(INTERMEDIATES)]
        rows = [(number + 1, step, id, "PERIODICAL", step, began + 150 * step, y) for step, y in enumerate(curve)]
        metrics += rows if final is None else [*rows, (number + 1, 99, id, "FINAL", 0, began + 8000, final)]
    connection.executemany(
        "INSERT INTO trials (id, sequence_id, status, parameter_id, record, created_ms, started_ms, ended_ms,"
        " intermediates, last_value, final_data, final_value, end_order, failure_key, reason, message, last_words)"
        f" VALUES ({', '.join('?' * 17)})",
        trials,
    )
    connection.executemany(
        "INSERT INTO attempts (trial_id, number, job_name, service, state, place, intended_ms, started_ms, ended_ms)"
        " VALUES (?, 1, ?, 'local', ?, 'this machine', ?, ?, ?)",
        attempts,
    )
    connection.executemany("INSERT INTO outboxes (id, trial_id, attempt, name) VALUES (?, ?, 1, 'main')", outboxes)
    connection.executemany(
        "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value)"
        " VALUES (?, ?, ?, 1, ?, ?, ?, CAST(? AS TEXT), ?)",
        ((*row, row[-1]) for row in metrics),
    )


def _value(place: int, draw: random.Random) -> float | str:
    if place % 5 == 4:
        return draw.choice(("adam", "sgd", "rmsprop"))
    return 10 ** draw.uniform(-5, 0) if place % 2 else draw.random()


async def _measure(database: Path) -> None:
    revision = 0

    async def located(_: str) -> tuple[Path, str]:
        return database, str(revision)

    analysis = Analysis(located)
    print("| question | first s | filtered s | after a change s | bytes |\n|---|---|---|---|---|", flush=True)
    try:
        firsts = {}
        for question in ("trials", *(name for name in QUESTIONS if name != "trials")):  # which needs no parameters
            firsts[question], _ = await _asked(analysis, question, _FIELDS.get(question, ""))
        while '"computing"' in (await _asked(analysis, "importance", ""))[1]:  # noqa: ASYNC110 (it is asked for)
            await asyncio.sleep(0.2)
        for question, first in firsts.items():
            fields = _FIELDS.get(question, "")
            _, text = await _asked(analysis, question, fields)
            later = [await _asked(analysis, question, f"{fields}&p.p0={low / 50}..0.9") for low in range(1, 6)]
            filtered = statistics.median(seconds for seconds, _ in later)
            revision += 1
            changed, _ = await _asked(analysis, question, fields)
            print(f"| {question} | {first:.3f} | {filtered:.3f} | {changed:.3f} | {len(text)} |", flush=True)
        assert analysis.pid is not None
        print(
            f"memory of the process: {psutil.Process(analysis.pid).memory_info().rss >> 20} MB, load {os.getloadavg()}"
        )
    finally:
        await analysis.close()


async def _asked(analysis: Analysis, question: str, fields: str) -> tuple[float, str]:
    """Seconds and text of an answer."""
    pairs = [tuple(pair.split("=", 1)) for pair in fields.split("&") if pair]
    began = time.perf_counter()
    answer = await analysis.ask("exp1", question, Query.parse(pairs))  # type: ignore[arg-type]  # pairs are of two
    return time.perf_counter() - began, answer.text


if __name__ == "__main__":
    main()
