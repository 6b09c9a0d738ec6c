"""Two experiments of one account stay within its limits, by the fake's log, also around an outage: in virtual time."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.archive import pack
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platform_kit.pull import Pull
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.openpai.account import OpenpaiAccount
from nni_manager.platforms.openpai.platform import OpenpaiPlatform
from tests.fakes.openpai.server import RestServer
from tests.platforms.keeper_world import job_spec

pytestmark = [pytest.mark.contract, pytest.mark.looptime]

JOBS, CONCURRENCY, RUN_S, POLL_S = 300, 60, 90.0, 5.0
OUTAGE_FROM_S, OUTAGE_S = 300.0, 120.0
#: Since the epoch; the loop's clock begins at 0.
EPOCH_S = 1_700_000_000.0


class Experiment:
    """What the scheduler does, and no more."""

    def __init__(self, id: str, server: RestServer, folder: Path, connections: Any) -> None:
        self.recorder = Recorder(id)
        self.recorder.connections = connections
        self.recorder.folder = folder / id
        (folder / "code").mkdir(exist_ok=True)
        (folder / id / "code").mkdir(parents=True)
        self.recorder.code_archive = pack(folder / "code", folder / id / "code").path
        self.platform = _Platform(server, _settings(folder), self.recorder.host(unreachable_keeper()))
        self.open: list[JobHandle] = []
        self.ended: dict[str, tuple[JobState, float]] = {}

    async def run(self) -> None:
        waiting = [self._spec(number) for number in range(JOBS)]
        async with self.platform, asyncio.TaskGroup() as group:
            group.create_task(self._again(lambda: self._submit(waiting), lambda: bool(waiting)))
            group.create_task(self._again(self._look, lambda: len(self.ended) < JOBS))

    async def _again(self, act: Callable[[], Awaitable[None]], is_needed: Callable[[], bool]) -> None:
        while is_needed():
            with contextlib.suppress(PlatformUnavailable):
                await act()
            await asyncio.sleep(POLL_S)

    async def _submit(self, waiting: list[Any]) -> None:
        while waiting and len(self.open) < CONCURRENCY:
            answer = await self.platform.submit(waiting[0])
            if isinstance(answer, NoRoom):
                return
            self.open.append(self.recorder.accept(answer))
            waiting.pop(0)

    async def _look(self) -> None:
        if not self.open:
            return
        reports = await self.platform.observe(self.open)
        done = [handle for handle, report in reports.items() if report.state.is_final]
        now = asyncio.get_running_loop().time()
        self.ended |= {handle.job_name: (reports[handle].state, now) for handle in done}
        self.open = [handle for handle in self.open if handle not in done]
        await self.platform.forget(done)

    def _spec(self, number: int) -> Any:
        trial_id = f"t{number:04}"
        id = self.recorder.experiment_id
        return job_spec(
            name=job_name(id, trial_id, 1), experiment_id=id, trial_id=trial_id, attempt=1, command="true",
            caller_environment={}, code_directory="/nowhere", nonce="n0nce",
            attempt_directory=str(self.recorder.folder / "trials" / trial_id),
        )  # fmt: skip


class _Platform(OpenpaiPlatform):
    """Asks the fake without a network."""

    def __init__(self, server: RestServer, settings: Any, host: Any) -> None:
        super().__init__(settings, host)
        self._server = server
        self._folders.pull = _NothingRead(host)

    def _account(self) -> OpenpaiAccount:
        transport = httpx.ASGITransport(app=self._server.app)
        return OpenpaiAccount(str(self.settings["host"]), "alice", transport=transport)


class _NothingRead(Pull):
    """Pretended jobs leave nothing."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def is_over(self, job_name: str) -> bool:
        return True


@pytest.mark.timeout(120)
async def test_two_experiments_keep_to_the_limits_of_their_account(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    server = RestServer(tmp_path / "cluster", lambda: EPOCH_S + loop.time())
    (tmp_path / "nfs").mkdir()
    server._set({"users": {"alice": {"tokens": ["t0ken"]}}, "storages": {"nfs": str(tmp_path / "nfs")}})
    server.behave(pretended_s=RUN_S)
    connections = Recorder("shared").connections
    experiments = [Experiment(id, server, tmp_path, connections) for id in ("one", "two")]
    outage = asyncio.create_task(_outage(server))
    await asyncio.gather(*(one.run() for one in experiments))
    await outage
    assert {job.state for job in server.cluster.jobs.values()} == {"SUCCEEDED"}
    assert len(server.cluster.jobs) == 2 * JOBS
    assert all(state is JobState.SUCCEEDED for one in experiments for state, _ in one.ended.values())
    _check_limits(server)
    _check_lag(server, experiments)


async def _outage(server: RestServer) -> None:
    await asyncio.sleep(OUTAGE_FROM_S)
    server.behave(outage=503)
    await asyncio.sleep(OUTAGE_S)
    server.behave(outage="")


def _check_limits(server: RestServer) -> None:
    assert 429 not in {status for *_, status in server.requests}
    for kind, (most, window_s) in {"list": (120, 60), "submit": (3600, 3600), "": (600, 60)}.items():
        times = [time for time, _, its, *_ in server.requests if kind in ("", its)]
        assert _most_in(times, window_s) <= most, kind


def _most_in(times: list[float], window_s: float) -> int:
    return max(bisect.bisect_left(times, time + window_s) - index for index, time in enumerate(times))


def _check_lag(server: RestServer, experiments: Iterable[Experiment]) -> None:
    """Ends are seen within two rounds of looking and what storage is waited for, unless an outage hides them."""
    lags = []
    for one in experiments:
        for name, (_, seen_s) in one.ended.items():
            ended_s = (server.cluster.jobs["alice", name].completed_ms or 0) / 1000 - EPOCH_S
            if not OUTAGE_FROM_S - RUN_S <= ended_s <= OUTAGE_FROM_S + OUTAGE_S:
                lags.append(seen_s - ended_s)
    print(f"status lag: median {sorted(lags)[len(lags) // 2]:.1f} s, most {max(lags):.1f} s of {len(lags)}")
    assert max(lags) <= 4 * POLL_S


def _settings(folder: Path) -> dict[str, Any]:
    return {
        "platform": "openpai", "host": "http://pai", "username": "alice", "token": "t0ken", "dockerImage": "image",
        "trialCpuNumber": 1, "trialMemorySize": 512, "storageConfigName": "nfs",
        "localStorageMountPoint": str(folder / "nfs"), "containerStorageMountPoint": "/mnt/nfs",
    }  # fmt: skip
