"""A real daemon with a few experiments as targets, which are replaced when calls stop or delete them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from tests.live_daemon import Daemon, end_all

#: Reports, and ends soon.
_TRIAL = """echo '{"type": "intermediate", "value": 0.5}' >> "$NNI_OUTBOX"; echo '{"type": "final", "value": 7}' \
>> "$NNI_OUTBOX"; echo said; exec sleep 0.2"""
_SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}, "layers": {"_type": "choice", "_value": [1, 2, 4]}}
#: Minimum number of open experiments, and maximum number before the oldest are deleted.
_OPEN, _MOST = 2, 12


class Target:
    """`base`: address of its service. `folder`: contains all created files."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder = folder
        self.daemon = daemon
        self.code = folder / "code"
        self.code.mkdir()
        listeners = daemon.call("GET", "/daemon")["listeners"]
        (self.base,) = [listener["address"] for listener in listeners if listener["kind"] == "service"]
        assert daemon.process is not None
        self.process = psutil.Process(daemon.process.pid)
        #: Ids of current and recent experiments, and of their trials.
        self.experiments: list[str] = []
        self._trials: dict[str, list[str]] = {}

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.base)
        return str(parts.hostname), int(parts.port or 0)

    def config(self, **fields: object) -> dict[str, Any]:
        values = {
            "searchSpace": _SPACE,
            "trialCommand": _TRIAL,
            "trialCodeDirectory": str(self.code),
            "trialConcurrency": 2,
            "maxTrialNumber": 6,
            "tuner": {"name": "Random"},
            "gracePeriod": "1s",
            "trainingService": {"platform": "local"},
            **fields,
        }
        return values

    def renew(self) -> None:
        """Refresh the objects; create missing ones and delete excess ones."""
        found = self.daemon.call("GET", "/experiments")["experiments"]
        self._delete(
            [one["id"] for one in found if one["status"] in ("STOPPED", "VIEWED")][: max(0, len(found) - _MOST)]
        )
        opened = [one["id"] for one in found if one["status"] not in ("STOPPED", "VIEWED", "STOPPING")]
        self._stop(opened[: max(0, len(opened) - _MOST // 2)])
        for _ in range(_OPEN - len(opened)):
            self.daemon.create(self.config(), self.code)
        self.experiments = [one["id"] for one in self.daemon.call("GET", "/experiments")["experiments"]]
        self._trials = {id_: self._trials_of(id_) for id_ in self.experiments}

    def trial(self, experiment: str, chance: Random) -> str:
        """The id of one of its trials, or an unknown id."""
        return chance.choice(self._trials.get(experiment) or ["none0"])

    def _trials_of(self, id_: str) -> list[str]:
        with contextlib.suppress(AssertionError):  # deleted meanwhile
            return [trial["id"] for trial in self.daemon.call("GET", f"/experiments/{id_}/trials")["trials"]]
        return []

    def _delete(self, ids: list[str]) -> None:
        for id_ in ids:
            with contextlib.suppress(AssertionError):
                self.daemon.call("POST", f"/experiments/{id_}/stop")
                self.daemon.call("DELETE", f"/experiments/{id_}")

    def _stop(self, ids: list[str]) -> None:
        for id_ in ids:
            self.daemon.call("POST", f"/experiments/{id_}/stop")


@contextmanager
def target() -> Iterator[Target]:
    """A target that is ended with all its processes."""
    with tempfile.TemporaryDirectory(prefix="nni-fuzz-") as name:
        folder = Path(name)
        for part in ("data", "home", "run"):
            (folder / part).mkdir()
        own = {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder / "run"), "NNI_MANAGER_TOKEN": ""}
        daemon = Daemon(folder / "data", environment=own)
        daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
        try:
            found = Target(folder, daemon)
            found.renew()
            yield found
        finally:
            _end(daemon, folder)


def _end(daemon: Daemon, folder: Path) -> None:
    with contextlib.suppress(Exception):
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()
    end_all(str(folder))
    if daemon.process is not None:
        daemon.process.wait()


def client(target: Target, timeout_s: float) -> httpx.Client:
    """A client of the service's port that ignores the environment."""
    return httpx.Client(base_url=target.base, timeout=timeout_s, trust_env=False)


def on_any_port(body: Any) -> Any:
    """Replace chosen endpoint ports by any free one, to not disturb this machine."""
    endpoint = body.get("endpoint") if isinstance(body, dict) else None
    if isinstance(endpoint, dict) and isinstance(endpoint.get("port"), int):
        return {**body, "endpoint": {**endpoint, "port": 0 if 0 < endpoint["port"] < 65536 else endpoint["port"]}}
    return body
