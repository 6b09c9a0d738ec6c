"""Pages offer only actions that are possible now: kill with open trials, replace with secrets, stop before delete."""

from __future__ import annotations

import httpx
import pytest

from tests.api.services import shown
from tests.api.world import World
from tests.web.test_pages import create, get

pytestmark = pytest.mark.unit

_ENDS = "Stops its running trials"


async def trials_and_list(visitor: httpx.AsyncClient, id_: str) -> tuple[str, str]:
    return (await get(visitor, f"/experiments/{id_}/trials")).text, (await get(visitor, "/")).text


async def test_kill_is_offered_only_with_open_trials(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    trials = f"/api/v1/experiments/{id_}/trials"
    added = (await visitor.post(trials, json={"parameters": {"x": 0.5}})).json()["id"]
    page, listed = await trials_and_list(visitor, id_)
    assert "Kill ticked" in page and _ENDS in page and _ENDS in listed
    assert (await visitor.post(f"/experiments/{id_}/trials/{added}/kill")).status_code == 303
    await shown(visitor, f"{id_}/trials", lambda found: [one["status"] for one in found["trials"]] == ["USER_CANCELED"])
    page, listed = await trials_and_list(visitor, id_)
    assert "USER_CANCELED" in page and "Compare ticked" in page
    assert "Kill" not in page and _ENDS not in page and _ENDS not in listed
    assert "No trials are running" in page and "No trials are running" in listed


async def test_open_experiment_offers_stop_instead_of_delete(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    page = await get(visitor, f"/experiments/{id_}/delete")
    assert "The experiment is still open (RUNNING)" in page.text
    assert f"/experiments/{id_}/stop" in page.values("form", "action")
    answer = await visitor.post(f"/experiments/{id_}/stop", data={"back": "delete"})
    assert answer.headers["Location"] == f"/experiments/{id_}/delete"
    assert "cannot be undone" in (await get(visitor, f"/experiments/{id_}/delete")).text


async def test_credentials_form_needs_secrets_in_the_config(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    page = await get(visitor, "/platforms")
    assert f"/experiments/{id_}" in page.values("a", "href")
    assert f"/experiments/{id_}/credentials" not in page.values("a", "href")
    assert "does not refer to a secret. back" in (await get(visitor, f"/experiments/{id_}/credentials")).text
