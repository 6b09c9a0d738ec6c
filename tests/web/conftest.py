"""A manager and a client of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from nni_manager.api import code, submission
from nni_manager.api.application import create_api, create_application
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.services import act
from tests.api.world import World, make_world


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


@pytest.fixture
async def visitor(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """The pages behind the guard, as in the daemon."""
    pages = create_pages(
        PagesContext(
            commands=world.commands,
            version="1.2.3",
            analysis=world.analysis,
            stopping=world.stopping,
            describe_api=create_api(world.context).openapi,
            read_experiment=lambda text: submission.of_pasted(text, world.context),
            sweep_code=partial(code.sweep, world.data),
            data_directory=world.data,
        )
    )
    async with world.calling(create_application(world.context, pages=pages)) as client:
        yield client


@pytest.fixture
def acted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)
