"""Closed jobs: forgotten at once, or after their platform's report was compared with the runner's exit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Capabilities, Host
from nni_manager.scheduler.planning.decisions import Forget
from nni_manager.scheduler.turns import forgetting
from nni_manager.scheduler.turns.forgetting import Forgetting
from nni_manager.scheduler.turns.observer import Observer
from tests.scheduler.fake_platform import RUNNING, SUCCEEDED, FakePlatform
from trial_runner.wire.backoff import Backoff

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

A, B = "nni_exp_exp1_trial_aaaaa", "nni_exp_exp1_trial_bbbbb"
FAILED = Observation(state=JobState.FAILED, exit_code=1)
BOTH = "the platform reports FAILED (exit code 1), the runner reports exit code 0"


class Bench:
    """Forgetting, the platform that it speaks to, and the observer that `look`s for it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        host = Host(
            experiment_id="exp1",
            service="fake",
            wake=lambda name: self.observer.wake(name),
            deliver=cast(Any, None),
            followed=cast(Any, None),
            stored=cast(Any, None),
            connections=Connections(),
            folder=Path(),
            code=cast(Any, None),
            register=cast(Any, None),
            exited=cast(Any, None),
        )
        self.platform = FakePlatform({}, host)
        self.observer = Observer(
            service="fake",
            database=cast(Any, None),
            observe=self.platform.observe,
            tell=lambda reports: self.forgetting.hear(reports),
            capabilities=Capabilities(watches=True, reads_files=False, slow_poll_s=20),
        )
        self.observer._look_at_all = False  # it has no store
        self.forgotten: list[str] = []
        #: Ends that the last question found.
        self.late: dict[str, Observation] = {}
        self.forgetting = Forgetting(
            self.platform.forget,
            self.platform.observe,
            self.observer,
            self.forgotten.extend,
            lambda ends, _: self.late.update(ends),
        )
        self.forgetting.enter(group)

    def decide(self, name: str, exit_code: int | None = None) -> None:
        """`exit_code`: the runner's word, which alone decided."""
        word = "" if exit_code is None else json.dumps({"exitCode": exit_code})
        handle = JobHandle(platform="fake", version=1, job_name=name)
        self.forgetting.add([Forget(handle=handle, service="fake", runner_exit=word)])

    async def say(self, name: str, report: Observation) -> None:
        self.platform.change(name, report)
        await self.observer.look()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 (any condition; no event tells of each)
                await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        yield bench
        await bench.forgetting.finish()


def disagreements(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "disagreement"]


async def test_reported_job_is_forgotten_without_observation(bench: Bench) -> None:
    bench.decide(A)
    bench.decide(B)
    await bench.until(lambda: bench.platform.forgotten == [A, B])
    assert (bench.platform.observed, bench.forgotten) == ([], [A, B])


@pytest.mark.parametrize(
    ("said", "report", "sentences"),
    [
        (0, FAILED, [f"Job {A}: {BOTH}"]),
        (3, SUCCEEDED, [f"Job {A}: the platform reports SUCCEEDED (exit code 0), the runner reports exit code 3"]),
        (0, SUCCEEDED, []),
        (3, FAILED, []),
    ],
)
async def test_contradicting_platform_report_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, said: int, report: Observation, sentences: list[str]
) -> None:
    bench.platform.jobs[A] = RUNNING
    bench.decide(A, said)
    await bench.observer.look()
    assert bench.platform.forgotten == []
    await bench.say(A, report)
    await bench.say(A, report)
    await bench.until(lambda: bench.platform.forgotten == [A])
    assert disagreements(caplog) == sentences


async def test_platform_report_during_the_decision_is_compared(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.platform.jobs[A] = FAILED
    await bench.observer.look()
    bench.decide(A, 0)
    await bench.observer.look()
    await bench.until(lambda: bench.platform.forgotten == [A])
    assert disagreements(caplog) == [f"Job {A}: {BOTH}"]


async def test_patience_ends_with_one_more_question(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "PATIENCE_S", 0.05)
    bench.platform.jobs |= {A: RUNNING, B: FAILED}
    bench.decide(A, 0)
    bench.decide(B, 0)
    await bench.until(lambda: sorted(bench.platform.forgotten) == [A, B])
    assert {name for names in bench.platform.observed for name in names} == {A, B}
    assert bench.late == {B: FAILED}
    assert disagreements(caplog) == [f"Job {B}: {BOTH}"]


@pytest.mark.parametrize(("limit_s", "is_left"), [(300, True), (0.01, False)])
async def test_a_runner_that_still_delivers_is_not_cut_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limit_s: float, is_left: bool
) -> None:
    """Each piece of its logs buys it as much time as it had at first, up to a limit."""
    monkeypatch.setattr(forgetting, "PATIENCE_S", 0.1)
    monkeypatch.setattr(forgetting, "LOGS_S", limit_s)
    bench.platform.jobs |= {A: RUNNING, B: RUNNING}
    bench.decide(A, 0)
    bench.decide(B, 0)
    monkeypatch.setattr(forgetting, "PATIENCE_S", 100)
    bench.forgetting.wait_longer(A)
    bench.forgetting.wait_longer("nni_exp_exp1_trial_zzzzz")
    await bench.until(lambda: B in bench.platform.forgotten and (A in bench.platform.forgotten) is not is_left)


async def test_closing_experiment_does_not_wait_for_reports(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.platform.jobs[A] = FAILED
    bench.decide(A, 0)
    await bench.forgetting.finish()
    assert bench.platform.forgotten == [A]
    assert disagreements(caplog) == [f"Job {A}: {BOTH}"]


async def test_awaited_platform_report_does_not_delay_other_jobs(bench: Bench) -> None:
    bench.platform.jobs[A] = RUNNING
    bench.decide(A, 0)
    bench.decide(B)
    await bench.until(lambda: bench.platform.forgotten == [B])


async def test_forget_is_retried_while_the_platform_is_unreachable(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.forgetting, "_backoff", Backoff((0.01,)))
    bench.platform.raises["forget"] = [PlatformUnavailable("away")] * 3
    bench.decide(A)
    await bench.until(lambda: "1 ended jobs could not be forgotten yet: away" in caplog.text)
    bench.decide(B)
    await bench.until(lambda: bench.platform.forgotten == [A, B])
    assert caplog.text.count("not be forgotten yet") == 1
    assert bench.forgotten == [A, B]


async def test_closing_does_not_wait_for_unreachable_platform(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The next start of its loop tells it."""
    bench.platform.raises["forget"] = [PlatformUnavailable("away")] * 9
    bench.decide(A)
    await bench.until(lambda: "not be forgotten yet" in caplog.text)
    async with asyncio.timeout(0.5):
        await bench.forgetting.finish()
        assert bench.forgotten == []


async def test_polled_platform_gets_its_interval_to_report_an_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "PATIENCE_S", 0.0)
    bench.observer.capabilities = Capabilities(watches=False, reads_files=False, slow_poll_s=0.3)
    bench.platform.jobs[A] = RUNNING
    bench.decide(A, 0)
    begun = asyncio.get_running_loop().time()
    await bench.until(lambda: bench.platform.forgotten == [A])
    assert asyncio.get_running_loop().time() - begun >= 0.3
