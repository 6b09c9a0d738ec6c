"""A daemon with experiments of many trials: 20 parameters and 50 intermediate results each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nni_manager.store.connection import connect
from tests.benchmarks import analysis, subject, upstream
from tests.live_daemon import Daemon

SIZES = (1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class Site:
    """A daemon with a port, and an experiment of each size."""

    daemon: Daemon
    port: int
    #: Trials → id of the experiment.
    ids: dict[int, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, size: int, tab: str = "") -> str:
        return f"{self.url}/experiments/{self.ids[size]}{tab}"

    def endpoint(self, size: int) -> str:
        """Address of its endpoint, which has NNI's API."""
        return str(self.daemon.status(self.ids[size])["endpoint"]["url"])

    def restart(self) -> None:
        """Close the experiments, so that nothing stays in memory."""
        self.daemon.terminate()
        self.daemon.start("--port", str(self.port))


@contextmanager
def site(folder: Path, sizes: Sequence[int] = SIZES) -> Iterator[Site]:
    port = upstream.free_port()
    with subject.running(folder, "--port", str(port)) as daemon:
        ids = {size: _create(daemon, folder / "code") for size in sizes}
        for id_ in ids.values():
            daemon.wait(id_, "DONE")
        daemon.terminate()
        for size, id_ in ids.items():
            fill(daemon.data / id_ / "db" / "nni.sqlite", id_, size)
        daemon.start("--port", str(port))
        yield Site(daemon, port, ids)


def fill(database: Path, id: str, count: int) -> None:
    """Replace the trials of an experiment that is not open in a daemon by `count` ended ones."""
    with closing(connect(database)) as connection:
        for table in ("metrics", "outboxes", "attempts", "trials"):
            connection.execute(f"DELETE FROM {table}")
        analysis.add_trials(connection, id, count, running=0)
        connection.execute(
            "UPDATE experiment SET revision = revision + 1, next_sequence_id = ?1, next_parameter_id = ?1,"
            " ended_trials = ?1, config = json_set(config, '$.maxTrialNumber', ?1)",
            (count,),
        )


def _create(daemon: Daemon, code: Path) -> str:
    """With an endpoint."""
    body = {
        "config": json.dumps({"experimentWorkingDirectory": str(daemon.data), **_config()}),
        "directory": str(code),
        "environment": dict(os.environ),
        "interpreter": sys.executable,
        "endpoint": {"port": 0, "urlPrefix": ""},
    }
    return str(daemon.call("POST", "/experiments", json=body)["id"])


def _config() -> dict[str, object]:
    """An experiment with one trial, which is replaced later."""
    tuner = {"name": "Random", "classArgs": {"optimize_mode": "minimize"}}
    config = subject.config(trials=1, at_once=1, command="true")
    return {**config, "searchSpace": analysis.space(), "tuner": tuner}
