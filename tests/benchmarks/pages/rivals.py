"""The same trials in Optuna's storage, and the servers of the two other pages."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests import nni3
from tests.benchmarks import upstream
from tests.upstream.page_front import front, static_files

_STATES = {"SUCCEEDED": "COMPLETE", "FAILED": "FAIL"}
_STUDY = "import optuna, sys; optuna.create_study(storage=sys.argv[1], study_name='s', direction='minimize')"


@contextmanager
def nni_page(endpoint: str) -> Iterator[str]:
    """Address of NNI 3.0's page, its own files, in front of an endpoint of ours."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with front(static_files(nni3.interpreter()), endpoint) as url:
            found.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    server = threading.Thread(target=asyncio.run, args=(serve(),))
    server.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        over.set()
        server.join()


@contextmanager
def optuna_dashboard(python: Path, database: Path, folder: Path) -> Iterator[str]:
    """Address of a study with the trials of `database`. `python`: of an environment with optuna-dashboard."""
    folder.mkdir(parents=True)
    study = folder / "study.db"
    subprocess.run([python, "-c", _STUDY, f"sqlite:///{study}"], check=True, capture_output=True)
    fill(study, database)
    port = upstream.free_port()
    program = python.with_name("optuna-dashboard")
    with subprocess.Popen([program, f"sqlite:///{study}", "--port", str(port)], stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        _wait(url)
        try:
            yield f"{url}/dashboard/studies/1"
        finally:
            server.terminate()


def fill(study: Path, database: Path) -> None:
    """Copy the trials of an experiment of ours into an empty study."""
    with closing(sqlite3.connect(database)) as ours, closing(sqlite3.connect(study)) as theirs, theirs:
        space = json.loads(ours.execute("SELECT config FROM experiment").fetchone()[0])["searchSpace"]
        distributions = {name: _distribution(dimension) for name, dimension in space.items()}
        rows = ours.execute("SELECT sequence_id, status, record, final_value FROM trials ORDER BY sequence_id")
        for number, status, record, value in rows.fetchall():
            _add(theirs, number, _STATES[status], json.loads(record)["parameters"], value, space, distributions)
        curves = ours.execute(
            "SELECT t.sequence_id + 1, m.sequence, m.value, 'FINITE' FROM metrics m JOIN trials t ON t.id = m.trial_id"
            " WHERE m.type = 'PERIODICAL'"
        )
        theirs.executemany(
            "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)"
            " VALUES (?, ?, ?, ?)",
            curves,
        )


def _add(
    study: sqlite3.Connection,
    number: int,
    state: str,
    parameters: dict[str, Any],
    value: float | None,
    space: dict[str, Any],
    distributions: dict[str, str],
) -> None:
    id_ = number + 1
    study.execute(
        "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete) VALUES"
        " (?, ?, 1, ?, datetime(1790000000 + ?, 'unixepoch'), datetime(1790000008 + ?, 'unixepoch'))",
        (id_, number, state, number, number),
    )
    study.executemany(
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, ?, ?, ?)",
        ((id_, name, _internal(space[name], one), distributions[name]) for name, one in parameters.items()),
    )
    if value is not None:
        study.execute(
            "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, 0, ?, 'FINITE')", (id_, value)
        )


def _distribution(dimension: dict[str, Any]) -> str:
    values = dimension["_value"]
    if dimension["_type"] == "choice":
        return json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": values}})
    log = dimension["_type"] == "loguniform"
    attributes = {"step": None, "low": float(values[0]), "high": float(values[1]), "log": log}
    return json.dumps({"name": "FloatDistribution", "attributes": attributes})


def _internal(dimension: dict[str, Any], value: Any) -> float:
    """A value in Optuna's storage format: choices by index."""
    return float(dimension["_value"].index(value) if dimension["_type"] == "choice" else value)


def _wait(url: str, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            httpx.get(url, timeout=60, follow_redirects=True)
            return
        except httpx.TransportError:
            time.sleep(0.1)  # it tells nothing when it is ready
    raise AssertionError(f"nothing answers at {url}")
