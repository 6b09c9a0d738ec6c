"""Training services and places of trials on an experiment's page."""

from __future__ import annotations

import httpx
import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.contract import Room
from tests.api.services import Acted, add_trial, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


@pytest.mark.usefixtures("acted")
@pytest.mark.parametrize(("link", "is_shown"), [("https://there/jobs/1", True), ("javascript:alert(1)", False)])
async def test_services_and_places_are_on_the_page(
    visitor: httpx.AsyncClient, world: World, link: str, is_shown: bool
) -> None:
    Acted.rooms["local"] = Room(free=1, why=Wait(code=WaitCode.GPU, sentence="gpu <0> is busy"))
    Acted.first = Observation(state=JobState.RUNNING, place="host <A>", link=link, started_ms=5)
    id_ = await create(visitor, world)
    trial_id = await add_trial(visitor, id_)
    await shown(visitor, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    page = (await visitor.get(f"/experiments/{id_}")).text
    assert "local up" in page and "gpu &lt;0&gt; is busy" in page and "room for 1 more" in page
    table = (await visitor.get(f"/experiments/{id_}/trials")).text
    assert "host &lt;A&gt;" in table
    assert (f'href="{link}"' in table) is is_shown


@pytest.mark.usefixtures("acted")
async def test_long_wait_reason_is_folded(visitor: httpx.AsyncClient, world: World) -> None:
    """A long reason, such as a list of a hundred GPUs, is shortened, and the full text is on the page."""
    sentence = "; ".join(f"gpu {number} on node is busy" for number in range(20))
    Acted.rooms["local"] = Room(free=1, why=Wait(code=WaitCode.GPU, sentence=sentence))
    id_ = await create(visitor, world)
    await shown(visitor, id_, lambda one: one["services"][0]["sentence"] == sentence)
    page = (await visitor.get(f"/experiments/{id_}")).text
    assert f"</summary>{sentence}</details>" in page
    assert '<details class="why" id="why-local"><summary>gpu 0 on node is busy;' in page
