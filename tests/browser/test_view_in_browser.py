"""An experiment's endpoint in a real browser: live updates, also below a prefix, until the experiment is closed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.acceptance.command_line import RUN_ON, CommandLine, command_line, id_in, state_of
from tests.browser.shared_page import opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]  # the scope of the browser


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


@pytest.mark.parametrize("prefix", [(), ("--url_prefix", "my/pre")])
async def test_endpoint_page_is_live_until_closed(
    browser: Browser, nnictl: CommandLine, prefix: tuple[str, ...]
) -> None:
    config = nnictl.config(trialCommand=RUN_ON, maxTrialNumber=2)
    out = await asyncio.to_thread(nnictl.good, "create", "-c", config, "--port", 0, *prefix)
    id_ = id_in(out)
    url = next(line.split()[1] for line in out.splitlines() if line.startswith("Page"))
    await asyncio.to_thread(state_of, nnictl.daemon, id_, RUNNING=2)
    async with opened(browser) as page:
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("response", lambda answer: troubles.append(answer.url) if answer.status >= 400 else None)
        page.on("console", lambda said: troubles.append(said.location["url"]) if said.type == "error" else None)
        await page.goto(url.rstrip("/"))
        assert page.url == url
        await expect(page.get_by_role("heading", level=1)).to_contain_text(id_)
        await expect(page.get_by_role("navigation", name="Main")).to_have_count(0)
        await page.locator("#tabs").get_by_role("link", name="Trials").click()
        await expect(page.locator("[data-trial]")).to_have_count(2)
        trial = (await asyncio.to_thread(nnictl.daemon.call, "GET", f"/experiments/{id_}/trials"))["trials"][0]["id"]
        row = page.locator("[data-trial]", has_text=trial)
        await page.locator(f"#kill-{trial}").click()
        await page.locator(f"#kill-now-{trial}").click()
        await expect(row).to_contain_text("USER_CANCELED", timeout=20_000)  # from an event
        assert [url for url in troubles if not url.endswith("/favicon.ico")] == []
        await page.locator("#stop").click()
        await page.locator("#stop-now").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("is closed", timeout=30_000)
        await expect(page.locator("main")).to_contain_text(f"nnictl resume {id_}")


async def test_stopped_daemon_is_noticed(browser: Browser, nnictl: CommandLine) -> None:
    daemon = await asyncio.to_thread(nnictl.serve, "--port", "0")
    service = next(
        listener for listener in daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "service"
    )["address"]
    id_ = await asyncio.to_thread(nnictl.create, trialCommand=RUN_ON, maxTrialNumber=2)
    await asyncio.to_thread(state_of, daemon, id_, RUNNING=2)
    async with opened(browser) as page:
        await page.goto(f"{service}/experiments/{id_}/trials")
        notice = page.locator("#connection")
        await expect(page.locator("[data-trial]")).to_have_count(2)
        await expect(notice).to_be_hidden()
        await asyncio.to_thread(daemon.kill)
        await expect(notice).to_have_text(re.compile(r"^not connected; last updated \d\d:\d\d:\d\d UTC$"))
        said = await notice.text_content()
        for _ in range(2):
            await page.wait_for_event("requestfailed", timeout=30_000)  # it retries
        assert await notice.text_content() == said
        port = service.rpartition(":")[2]
        await asyncio.to_thread(daemon.start, "--port", port)
        await expect(notice).to_be_hidden(timeout=20_000)
        await asyncio.to_thread(daemon.kill)
        await expect(notice).to_be_visible()
        await asyncio.to_thread(daemon.start, "--no-listen")
        await asyncio.to_thread(nnictl.good, "stop", id_)
        await asyncio.to_thread(nnictl.good, "experiment", "delete", id_, "-y")
        daemon.terminate()
        await asyncio.to_thread(daemon.start, "--port", port)
        await expect(page.locator("main")).to_contain_text(f"cannot find experiment {id_}", timeout=20_000)
