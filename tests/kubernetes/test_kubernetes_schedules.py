"""Whatever an API server answers, for seconds, for minutes or for good, to any kind of call, in any order: a trial ends
as it would have, or the service is on a hold that ends by itself once the answer is another one. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import HoldCode, PlatformSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.service import ServiceStatus
from nni_manager.kubernetes.api import cluster
from nni_manager.kubernetes.api.client import Refusal
from nni_manager.kubernetes.jobs import draft
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Host, NoRoom
from nni_manager.platforms.kubeflow.config import KubeflowConfig
from nni_manager.platforms.kubeflow.platform import KubeflowPlatform
from nni_manager.scheduler.turns import observer
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.store.experiment import jobs
from tests.kubernetes.virtual_api_server import CLOSED, WITHOUT_US, ApiServer, Fault

pytestmark = [pytest.mark.unit, pytest.mark.looptime, pytest.mark.timeout(60)]

#: How many random schedules; a whole run has 300.
SCHEDULES = int(os.environ.get("NNI_TEST_SCHEDULES", "20"))
CALLS = ("list tfjobs", "list pods", "watch tfjobs", "watch pods", "GET .*", "POST .*", "PATCH .*", ".*")
ANSWERS: tuple[int | str, ...] = (401, 403, 404, 409, 410, 429, 500, 503, 0, CLOSED, WITHOUT_US)
#: Seconds for which an answer stays.
LASTS = ((1.0, 20.0), (60.0, 600.0), (1e9, 1e9))
#: Seconds within which all faults begin, and that everything takes once they are over.
BEGIN_S, PATIENCE_S = 400.0, 1800.0
_WORKER = {"replicas": 1, "command": "true", "dockerImage": "x", "cpuNumber": 1, "memorySize": 64, "gpuNumber": 0}
SETTINGS: dict[str, Any] = {
    "platform": "kubeflow",
    "operator": "tf-operator",
    "apiVersion": "v1",
    "worker": _WORKER,
    "channel": "push",
    "kubeconfig": "/nowhere",
    "namespace": "default",
}


class Stage:
    """One service with one trial, and the part of the plan that is about it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]) -> None:
        self.server = ApiServer(faults)
        self.handle: JobHandle | None = None
        self.report: Observation | None = None
        self.hold: HoldCode | None = None
        self.held: list[float] = []
        self._is_repeat = False
        self._inbox = Inbox()
        self.connections = connections = Connections()

        def make(wake: Any) -> KubeflowPlatform:
            nothing: Any = None
            host = Host(
                experiment_id="e",
                service="kubeflow",
                wake=wake,
                deliver=nothing,
                followed=nothing,
                stored=nothing,
                connections=connections,
                folder=folder,
                code=nothing,
                register=nothing,
                exited=nothing,
            )
            return KubeflowPlatform(KubeflowConfig.model_validate(SETTINGS), host)

        monkeypatch.setattr(
            observer, "_undecided", lambda *_: {self.handle.job_name: self.handle} if self.handle else {}
        )
        self.service = TrainingService(
            spec=PlatformSpec(name="kubeflow", service="kubeflow", settings=SETTINGS),
            make=make,
            inbox=self._inbox,
            database=cast(Any, _Database()),
            clock=lambda: round(asyncio.get_running_loop().time() * 1000),
            changed=lambda: None,
        )

    async def run(self) -> None:
        while True:
            self._inbox.begin_turn()
            self._take_in()
            await self._submit()
            await self._inbox.wait(0.5)

    def _take_in(self) -> None:
        seen = self._inbox.take(judged_bad=(), failure=None).seen
        if seen.ended_holds and self.hold is HoldCode.BAD_CREDENTIALS:
            self.hold = None
        for hold in seen.holds.values():
            self.hold = hold.code
            self.held.append(asyncio.get_running_loop().time())
        for report in seen.reports.values():
            if self.report is None or not self.report.state.is_final:
                self.report = report

    async def _submit(self) -> None:
        state = self.service.state
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        is_held = self.hold is not None and not (self.hold is HoldCode.BAD_CREDENTIALS and state.is_tried)
        if self.handle is not None or is_held or not state.may_submit(now_ms) or state.free == 0:
            return
        try:
            answer = await self.service.submit(_spec(self._is_repeat))
        except PlatformUnavailable as error:
            self.service.note_refusal(error)
            self._is_repeat = self._is_repeat or not error.refused
        except BadCredentials as error:
            self.service.note_refusal(error)
        else:
            self.handle = None if isinstance(answer, NoRoom) else answer

    async def until(self, seconds: float) -> None:
        """Until the trial has ended, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.report is None or not self.report.state.is_final:  # noqa: ASYNC110 (virtual time)
                    await asyncio.sleep(1.0)


class _Database:
    async def read(self, function: Any) -> Any:
        return function(None)


def _spec(is_repeat: bool) -> JobSpec:
    spec = draft.spec()
    values = {field: getattr(spec, field) for field in spec.__dataclass_fields__}
    values |= {"is_repeat": is_repeat, "runner_environment": {"NNI_TRIAL_TOKEN": "t", "NNI_MANAGER_URL": "http://m"}}
    return JobSpec(**values)


@contextlib.asynccontextmanager
async def at_work(folder: Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]) -> AsyncIterator[Stage]:
    async def inline(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    async def connect(access: Any) -> Any:
        return stage.server

    monkeypatch.setattr(asyncio, "to_thread", inline)
    monkeypatch.setattr(cluster, "connect", connect)
    for name in ("unconfirmed_jobs", "unforgotten"):
        monkeypatch.setattr(jobs, name, lambda *_: [])
    monkeypatch.setattr(jobs, "unconfirmed", lambda *_: {})
    stage = Stage(folder, monkeypatch, faults)
    tasks = [asyncio.create_task(stage.service.run()), asyncio.create_task(stage.run())]
    try:
        yield stage
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stage.server.end()


def _schedule(random_: random.Random) -> list[Fault]:
    found = []
    for _ in range(random_.randint(1, 5)):
        begin_s = random_.uniform(0.0, BEGIN_S)
        what, call = random_.choice(ANSWERS), random_.choice(CALLS)
        call = call if isinstance(what, int) else random_.choice(("list .*", "watch .*"))
        found.append(Fault(call, what, begin_s, begin_s + random_.uniform(*random_.choice(LASTS))))
    return found


@pytest.mark.parametrize("seed", range(SCHEDULES))
async def test_a_trial_ends_as_it_would_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    faults = _schedule(random.Random(seed))
    async with at_work(tmp_path, monkeypatch, faults) as stage:
        await stage.until(PATIENCE_S)
        assert stage.hold in (None, HoldCode.BAD_CREDENTIALS), faults
        stage.server.faults.clear()
        await stage.until(PATIENCE_S)
        assert stage.report is not None, faults
        assert (stage.report.state, stage.report.exit_code) == (JobState.FAILED, 7), (faults, stage.report)
        assert stage.server.made == 1 and stage.hold is None, faults


@pytest.mark.parametrize("call", [".*", "list .*", "watch .*", "POST .*"])
async def test_seconds_of_refusals_cause_no_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A restarted server refuses all calls until it has loaded its rights: at the start, and while the trial runs."""
    faults = [Fault(call, 403, 0.0, 25.0), Fault(call, CLOSED, 100.0, 100.1), Fault(call, 403, 100.1, 130.0)]
    async with at_work(tmp_path, monkeypatch, faults) as stage:
        await stage.until(PATIENCE_S)
        assert stage.report is not None and stage.report.exit_code == 7
        assert stage.held == []


async def test_a_watch_that_was_refused_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work(tmp_path, monkeypatch, [Fault("watch .*", 403, 0.0, 20.0)]) as stage:
        await asyncio.sleep(120)
        lists = [call for at_s, call in stage.server.calls if at_s > 60 and call == "list tfjobs"]
        assert lists == [], "it is watched again"


@pytest.mark.parametrize("call", [".*", "POST tfjobs", "list pods"])
async def test_a_refusal_of_a_minute_is_a_hold_that_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async with at_work(tmp_path, monkeypatch, [Fault(call, 403, 0.0, 900.0)]) as stage:
        await asyncio.sleep(50)
        assert stage.held == []
        await asyncio.sleep(150)
        assert stage.hold is HoldCode.BAD_CREDENTIALS and len(stage.held) == 1
        await asyncio.sleep(600)
        tried = [at_s for at_s, one in stage.server.calls if at_s > 200 and one == "POST tfjobs"]
        assert len(tried) <= 11, "one a minute"
        await stage.until(PATIENCE_S)
        assert stage.hold is None and stage.report is not None and stage.report.exit_code == 7


async def test_refused_token_holds_the_service_while_watches_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does with a revoked token: one call of the exec channel is all that shows it."""
    faults = [Fault(call, 401, 50.0, 400.0) for call in ("GET pods", "POST selfsubjectaccessreviews")]
    async with at_work(tmp_path, monkeypatch, faults) as stage:
        await asyncio.sleep(60)
        [shared] = stage.connections.in_use(cluster.Cluster)
        with pytest.raises(Refusal):
            await shared.renewing(lambda client: client.call("GET", "/api/v1/namespaces/default/pods/x"))
        await asyncio.sleep(5)
        assert stage.service.live.status is ServiceStatus.AWAY
        await asyncio.sleep(115)
        assert stage.hold is HoldCode.BAD_CREDENTIALS
        await stage.until(PATIENCE_S)
        assert stage.hold is None and stage.report is not None and stage.report.exit_code == 7
