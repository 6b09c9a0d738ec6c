"""A whole manager in one process: real service, store and loops, an in-memory platform and a silent tuner.

Shared by the tests of API, client and pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.analysis.service import Analysis
from nni_manager.api.access.guard import PEER
from nni_manager.api.application import create_application
from nni_manager.api.context import ApiContext
from nni_manager.api.nni.placeholder_process import PlaceholderProcesses
from nni_manager.config import admission, experiment_file
from nni_manager.config.settings import Settings
from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.clock import now_ms
from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.domain.reason import Reason
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import cause_line
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Capabilities, Platform
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.experiments import services
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.leftovers import Leftovers
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.store import migrate
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, jobs, metrics, reports, trials
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.web import report
from nni_manager.web.rendering import PagesContext
from tests.scheduler.fake_endpoints import FakeEndpoints
from tests.scheduler.fake_listener import FakeListener
from tests.store.life import add_with

CREATED_MS = 1_790_000_000_000


class MemoryPlatform(Platform[Any]):
    """Every job runs until it is cancelled."""

    capabilities = Capabilities(watches=True, reads_files=False)
    jobs: ClassVar[dict[str, Observation]] = {}

    async def submit(self, spec: JobSpec) -> JobHandle:
        self.jobs.setdefault(spec.name, Observation(state=JobState.RUNNING, started_ms=now_ms()))
        return JobHandle(platform="local", version=1, job_name=spec.name)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        lost = Observation(state=JobState.LOST)
        return {handle: self.jobs.get(handle.job_name, lost) for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        for handle in handles:
            self.jobs[handle.job_name] = Observation(state=JobState.FAILED, signal=15, ended_ms=now_ms())
            self.host.wake(handle.job_name)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        for handle in handles:
            self.jobs.pop(handle.job_name, None)


class SilentFeed(TunerFeed):
    """A tuner that never proposes: only the user adds trials."""

    def want(self, count: int) -> None:
        """Does nothing."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass
class World:
    data: Path
    code: Path
    supervisor: Supervisor
    commands: ExperimentCommands
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    daemon_stops: list[bool] = field(default_factory=list)
    placeholders: PlaceholderProcesses = field(init=False)
    analysis: Analysis = field(init=False)

    def __post_init__(self) -> None:
        self.analysis = Analysis(self.commands.stored_state)
        self.placeholders = PlaceholderProcesses(self.commands, self.stopping)

    @property
    def context(self) -> ApiContext:
        pages = PagesContext(commands=self.commands, version="1.2.3", analysis=self.analysis)
        return ApiContext(
            commands=self.commands,
            version="1.2.3",
            data_directory=self.data,
            started_ms=CREATED_MS,
            listeners=lambda: [{"kind": "control", "address": "/run/control.sock"}],
            stop_daemon=self.daemon_stops.append,
            stopping=self.stopping,
            placeholders=self.placeholders,
            analysis=self.analysis,
            report=partial(report.build, pages),
            environment={"PATH": "/usr/bin"},
        )

    async def close(self) -> None:
        """As a daemon does before its experiments end."""
        await self.analysis.close()
        await self.placeholders.close()
        await self.commands.tensorboards.close()
        await self.commands.provenance.close()

    async def lose_index(self) -> None:
        """As with a lost disk."""
        await self.supervisor.index.close()
        self.supervisor.index.path.unlink()

    @asynccontextmanager
    async def calling(
        self, application: ASGIApp | None = None, uid: int | None = os.geteuid(), **options: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client that appears to use TCP. `uid`: user of the connection, by default ours; None: unknown or on another
        machine."""
        served = _connected(application or create_application(self.context), uid)
        transport = httpx.ASGITransport(cast(Any, served))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080", **options) as client:
            yield client

    def config(self, **fields: object) -> dict[str, Any]:
        return config(self.code, self.data, **fields)

    async def add(self, id: str, **options: Any) -> Folder:
        """A closed experiment with some trials; options as `seed`."""
        folder = await asyncio.to_thread(seed, self.data, self.code, id, **options)
        entry = index.read_folder(folder)
        await self.supervisor.index.write(lambda c: index.put(c, entry))
        return folder


@dataclass(frozen=True)
class _KnownPeer:
    user: int | None

    async def uid(self) -> int | None:
        return self.user


def _connected(application: ASGIApp, uid: int | None) -> ASGIApp:
    """Adds the peer's user id to the scope."""

    async def connected(scope: Scope, receive: Receive, send: Send) -> None:
        await application({**scope, "state": {**scope.get("state", {}), PEER: _KnownPeer(uid)}}, receive, send)

    return connected


@dataclass(frozen=True)
class RawAnswer:
    status: int
    #: Pieces of the body, as sent.
    parts: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


async def raw_get(
    application: ASGIApp, path: str, headers: Sequence[tuple[bytes, bytes]] = (), server: object = ("/run/socket", None)
) -> RawAnswer:
    """A GET exactly as given; client libraries tidy paths up and collect bodies. `path` is percent-encoded."""
    sent: list[Any] = []
    first = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(first, None) or await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    bare, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": unquote(bare),
        "raw_path": bare.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": list(headers),
        "server": server,
        "scheme": "http",
        "http_version": "1.1",
    }
    await application(scope, receive, send)
    return RawAnswer(sent[0]["status"], [message.get("body", b"") for message in sent[1:]])


@asynccontextmanager
async def make_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: MemoryPlatform)
    monkeypatch.setattr(admission, "check", lambda _spec: None)
    monkeypatch.setattr(admission, "check_platforms", lambda _spec: None)
    monkeypatch.setattr(services, "TunerFeed", SilentFeed)
    monkeypatch.setattr(MemoryPlatform, "jobs", {})
    data, code = folder / "data", folder / "code"
    data.mkdir()
    code.mkdir()
    (code / "trial.py").touch()
    migrate.migrate(data / "index.sqlite", "index")
    index_database = Database(data / "index.sqlite")
    keeper = Keeper(cast(Any, None))  # the in-memory platform never calls it
    connections = Connections()
    left = Leftovers(index_database, connections, data)
    await left.load()
    shared = SharedParts(
        settings=Settings(data_dir=data),
        keeper=keeper,
        connections=connections,
        trial_listener=FakeListener(),
        endpoints=FakeEndpoints(),
        clock=now_ms,
        warnings=DaemonWarnings(),
        leftovers=left,
    )
    supervisor = Supervisor(index_database, shared)
    async with supervisor.running():
        world = World(data, code, supervisor, ExperimentCommands(supervisor))
        yield world
        await world.close()
    await left.close()
    await index_database.close()


def config(code: Path, data: Path, **fields: object) -> dict[str, Any]:
    """An experiment file as a mapping; None leaves a field out."""
    values = {
        "experimentName": "digits",
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "python3 trial.py",
        "trialCodeDirectory": str(code),
        "trialConcurrency": 2,
        "maxTrialNumber": 10,
        "experimentWorkingDirectory": str(data),
        "tuner": {"name": "Random", "classArgs": {"seed": 1, "optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
        **fields,
    }
    return {name: value for name, value in values.items() if value is not None}


def seed(
    data: Path,
    code: Path,
    id: str,
    *,
    status: ExperimentStatus = ExperimentStatus.STOPPED,
    extra_trials: int = 0,
    hold: Hold | None = None,
    canonical: dict[str, Any] | None = None,
    **fields: object,
) -> Folder:
    """An experiment's folder as a daemon would have left it: one trial of every status, and `extra_trials` more."""
    folder = Folder(data / id)
    folder.create(data)
    migrate.migrate(folder.database, "experiment")
    spec = experiment_file.load(json.dumps(config(code, data, **fields)), directory=code)
    connection = sqlite3.connect(folder.database)
    with connection:
        experiments.create(
            connection,
            id=id,
            config=json.dumps({**spec.canonical, **(canonical or {})}),
            interpreter="/usr/bin/python3",
            folder=str(folder.path),
            now_ms=CREATED_MS,
        )
        experiments.set_hold(connection, hold)
        _add_trials(connection, id, extra_trials)
        experiments.set_status(connection, status, CREATED_MS + 60_000)
    connection.close()
    _write_logs(folder)
    return folder


def _add_trials(connection: sqlite3.Connection, id: str, extra: int) -> None:
    _add_trial(connection, id, "good1", 0, {"x": 0.25, "layers": [8, 4]})
    _report(connection, id, "good1", ["0.5", "0.75"], "0.875")
    _end(
        connection,
        id,
        "good1",
        TrialStatus.SUCCEEDED,
        Reason.NONE,
        "exit code 0",
        Observation(state=JobState.SUCCEEDED, exit_code=0),
    )
    _add_trial(connection, id, "nannn", 1, {"x": 0.5})
    _report(connection, id, "nannn", ["NaN"], "NaN")
    _end(
        connection,
        id,
        "nannn",
        TrialStatus.SUCCEEDED,
        Reason.NONE,
        "",
        Observation(state=JobState.SUCCEEDED, exit_code=0),
    )
    _add_trial(connection, id, "infin", 2, {"x": 0.75})
    _report(connection, id, "infin", [], '{"default": -Infinity, "loss": 3}')
    _end(
        connection,
        id,
        "infin",
        TrialStatus.SUCCEEDED,
        Reason.NONE,
        "",
        Observation(state=JobState.SUCCEEDED, exit_code=0),
    )
    _add_trial(connection, id, "fails", 3, {"x": "<b>bold</b>"})
    evidence = Observation(state=JobState.FAILED, exit_code=1, stderr_tail="Traceback\nValueError: no data")
    _end(connection, id, "fails", TrialStatus.FAILED, Reason.USER_CODE, "exit code 1", evidence)
    waits = Parameters(parameter_id=4, source=ParameterSource.ALGORITHM, values={"x": 1.0})
    add_with(connection, "waits", waits, CREATED_MS, "waits for a free slot")
    for number in range(extra):
        _add_trial(connection, id, f"e{number:04}", 5 + number, {"x": number})
        _report(connection, id, f"e{number:04}", [], f"0.{number}")
        _end(
            connection,
            id,
            f"e{number:04}",
            TrialStatus.SUCCEEDED,
            Reason.NONE,
            "",
            Observation(state=JobState.SUCCEEDED, exit_code=0),
        )


def _job(id: str, trial_id: str) -> str:
    return f"nni_exp_{id}_trial_{trial_id}"


def _add_trial(connection: sqlite3.Connection, id: str, trial_id: str, number: int, values: object) -> None:
    parameters = Parameters(parameter_id=number, source=ParameterSource.ALGORITHM, values=values)
    add_with(connection, trial_id, parameters, CREATED_MS)
    name = _job(id, trial_id)
    jobs.intend(connection, Attempt(trial_id, 1, name, service="local", intended_ms=CREATED_MS))
    jobs.set_handle(connection, JobHandle(platform="local", version=1, job_name=name))
    trials.set_running(connection, trial_id, CREATED_MS + 1_000)


def _report(connection: sqlite3.Connection, id: str, trial_id: str, intermediates: Sequence[str], final: str) -> None:
    values = [(MetricType.PERIODICAL, text) for text in intermediates] + [(MetricType.FINAL, final)]
    found = [Metric(type=kind, data=text, value=_number(text), number=n) for n, (kind, text) in enumerate(values)]
    chunk = metrics.OutboxPart(
        job_name=_job(id, trial_id), outbox="outbox/main.jsonl", start=0, end=100, lines=len(found), metrics=found
    )
    assert metrics.store(connection, chunk, CREATED_MS + 2_000).stored is metrics.Stored.NEW


def _number(text: str) -> float | None:
    value = json.loads(text)
    return value["default"] if isinstance(value, dict) else value


def _end(
    connection: sqlite3.Connection,
    id: str,
    trial_id: str,
    status: TrialStatus,
    reason: Reason,
    message: str,
    report: Observation,
) -> None:
    reports.set_report(connection, _job(id, trial_id), report, CREATED_MS + 5_000)
    trials.finish(
        connection,
        trial_id,
        status=status,
        reason=reason,
        message=message,
        ended_ms=CREATED_MS + 5_000,
        last_words=cause_line(report.stderr_tail),
    )
    jobs.close(connection, trial_id, 1)


def _write_logs(folder: Folder) -> None:
    (folder.log / "nnimanager.log").write_text("one\ntwo\n")
    attempt = folder.trials / "good1"
    attempt.mkdir()
    (attempt / "stdout").write_text("0123456789")
    (attempt / "stderr").write_bytes(b"")
    (attempt / "parameter.cfg").write_text("{}")
