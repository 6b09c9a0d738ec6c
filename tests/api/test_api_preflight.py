"""Preflight findings of training services before an experiment is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from nni_manager.api.schemas.experiments import Created
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from tests.api.services import EXPERIMENTS, Acted, act, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


class Asked(Acted):
    #: Findings, an exception to raise, or None: it never answers.
    says: Sequence[PreflightFinding] | Exception | None = ()

    async def preflight(self) -> Sequence[PreflightFinding]:
        if self.says is None:
            await asyncio.Event().wait()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says or ()


@pytest.fixture(autouse=True)
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Asked)
    monkeypatch.setattr(Asked, "says", ())


def finding(severity: Severity, sentence: str, fix: str = "") -> PreflightFinding:
    return PreflightFinding(severity=severity, subject="login", sentence=sentence, fix=fix)


@pytest.mark.parametrize(
    "says", [[finding(Severity.WRONG, "it is refused", "renew it")], BadCredentials("it is refused")]
)
async def test_preflight_failure_refuses_and_creates_nothing(
    api: httpx.AsyncClient, world: World, says: Sequence[PreflightFinding] | Exception
) -> None:
    Asked.says = says
    before = sorted(world.data.iterdir())
    answer = await api.post(EXPERIMENTS, json=world.config())
    assert answer.status_code == 400 and "trainingService local" in answer.json()["error"]
    assert "it is refused" in answer.json()["error"]
    assert (await api.get(EXPERIMENTS)).json()["experiments"] == [] and sorted(world.data.iterdir()) == before


async def test_a_service_that_is_away_is_warned_of_until_it_is_reached(api: httpx.AsyncClient, world: World) -> None:
    Asked.says = PlatformUnavailable("no route to host")
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    answer = await api.post(EXPERIMENTS, json=world.config())
    created = Created.model_validate_json(answer.content)
    assert [(one.code, "no route to host" in one.message) for one in created.warnings] == [("SERVICE_AWAY", True)]
    await shown(api, created.id, lambda one: one["services"][0]["status"] == "away" and one["warnings"], 2)
    Acted.trouble.clear()
    await shown(api, created.id, lambda one: one["services"][0]["status"] == "up" and not one["warnings"])


async def test_a_doubt_is_a_warning_that_stays(api: httpx.AsyncClient, world: World) -> None:
    Asked.says = [finding(Severity.WARNING, "the disk is nearly full"), finding(Severity.FINE, "all is well")]
    id_ = await create(api, world)
    found = await shown(api, id_, lambda one: one["services"][0]["status"] == "up")
    assert [warning["code"] for warning in found["warnings"]] == ["PREFLIGHT"]
    assert found["warnings"][0]["message"] == "local: login: the disk is nearly full"


async def test_silent_service_does_not_delay_creation(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.scheduler.experiments.preflight.TIME_LIMITS_S", {"preflight": 0.05})
    Asked.says = None
    answer = await api.post(EXPERIMENTS, json=world.config())
    assert answer.status_code == 201 and "no answer within" in answer.json()["warnings"][0]["message"]


async def test_an_adapter_that_fails_in_its_preflight_refuses_nothing(api: httpx.AsyncClient, world: World) -> None:
    Asked.says = KeyError("nodes")
    answer = await api.post(EXPERIMENTS, json=world.config())
    assert answer.status_code == 201
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["PREFLIGHT"]
