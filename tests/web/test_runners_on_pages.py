"""Trial runners on an experiment's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.api.application import create_application
from nni_manager.domain.errors import VersionRefused
from nni_manager.web.pages import PagesContext, create_pages
from tests.scheduler.runner_world import RunnerWorld, make_runner_world

pytestmark = pytest.mark.unit


async def page(world: RunnerWorld, path: str) -> str:
    pages = create_pages(PagesContext(commands=world.world.commands, version="1.2.3", analysis=world.world.analysis))
    async with world.world.calling(create_application(world.world.context, pages=pages)) as visitor:
        return (await visitor.get(path)).text


async def test_version_mismatch_is_the_first_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with make_runner_world(tmp_path, monkeypatch) as world:
        with pytest.raises(VersionRefused) as refusal:
            await world.reports.register(world.runner, "0.5.1<b>", "push")
        await world.ended()
        sentence = str(refusal.value).replace("<b>", "&lt;b&gt;")
        shown = await page(world, f"/experiments/{world.id}")
        assert f'<span class="sentence">{sentence}</span>' in shown
        table = await page(world, f"/experiments/{world.id}/trials")
        assert f"{sentence} (VERSION_MISMATCH)" in table, "at the trial"
        assert sentence in await page(world, "/")
