"""Name, notes and tags on the shared pages of an open experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from nni_manager.web import shared_pages
from tests.api.services import shown
from tests.api.world import World
from tests.web.test_pages import create

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("fields", [{"tags": ["paper"]}, {"notes": "seed 7"}, {"experimentName": "renamed"}])
async def test_saved_labels_are_on_the_next_page(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    """Another reader gets the page just before the change is in the list's database."""
    id_ = await create(world, visitor)
    await shown(visitor, id_, lambda one: [service["status"] for service in one["services"]] == ["up"])
    monkeypatch.setattr(shared_pages, "_FRESH_S", 60)
    for name in ("write", "note"):
        written = getattr(world.supervisor, name)

        async def read_first(function: Callable[[Any], Any], written: Any = written) -> Any:
            await visitor.get(f"/experiments/{id_}")
            return await written(function)

        monkeypatch.setattr(world.supervisor, name, read_first)
    assert (await visitor.patch(f"/api/v1/experiments/{id_}", json=fields)).status_code == 200
    [value] = fields.values()
    assert (value[0] if isinstance(value, list) else value) in (await visitor.get(f"/experiments/{id_}")).text
