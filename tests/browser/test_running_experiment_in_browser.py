"""A running experiment in a browser from start to end: a daemon restart, a lost fetch, a network outage.

The page reports each, never reloads, and shows every value.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.benchmarks.upstream import free_port
from tests.live_daemon import Daemon, running_daemon

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

#: Each result waits for a file with its name.
TRIAL = """
for value in 1111 2222 3333 4444; do
  until [ -e "$GATE/$value" ]; do sleep 0.05; done
  echo "{\\"type\\": \\"intermediate\\", \\"value\\": $value}" >> "$NNI_OUTBOX"
done
until [ -e "$GATE/end" ]; do sleep 0.05; done
echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID.25}" >> "$NNI_OUTBOX"
"""
#: Timeout for a daemon start on a busy machine.
PATIENCE_MS = 60_000


def config() -> dict[str, object]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "sh trial.sh",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }


class Watched:
    """Table and overview of one experiment, each in its own window."""

    def __init__(self, table: Page, overview: Page, gate: Path) -> None:
        self.table = table
        self.overview = overview
        self._gate = gate

    @property
    def windows(self) -> tuple[Page, Page]:
        return self.table, self.overview

    def report(self, value: str) -> None:
        (self._gate / value).touch()

    async def shows(self, value: str) -> None:
        """Wait for this latest result of both trials."""
        await expect(self.table.locator("td.col-latest", has_text=value)).to_have_count(2, timeout=PATIENCE_MS)

    async def is_connected(self, yes: bool) -> None:
        for page in self.windows:
            place = page.locator("#connection")
            if yes:
                await expect(place).to_be_hidden(timeout=PATIENCE_MS)
            else:
                await expect(place).to_contain_text("not connected; last updated", timeout=PATIENCE_MS)


async def test_from_start_to_end(browser: Browser, tmp_path: Path) -> None:
    gate, code, port = tmp_path / "gate", tmp_path / "code", str(free_port())
    gate.mkdir()
    code.mkdir()
    (code / "trial.sh").write_text(TRIAL)
    with running_daemon(tmp_path, "--port", port) as daemon:
        id_ = daemon.create(config(), code, {"GATE": str(gate)})
        context = await browser.new_context()
        table, overview = await context.new_page(), await context.new_page()
        watched = Watched(table, overview, gate)
        for page, tab in zip(watched.windows, ("/trials", ""), strict=True):
            await page.goto(f"http://127.0.0.1:{port}/experiments/{id_}{tab}")
            await page.evaluate("window.isTheSame = true")
        await expect(table.locator("tbody .running")).to_have_count(2, timeout=PATIENCE_MS)
        watched.report("1111")
        await watched.shows("1111")
        charted = overview.locator("figure[data-chart=results] .chart-count")  # while the experiment runs
        await expect(charted).to_contain_text("showing 2 of 2 trials", timeout=PATIENCE_MS)
        await _lost_fetch(watched)
        await _killed(watched, daemon, port)
        await _offline(watched)
        watched.report("end")
        await expect(table.locator("tbody .succeeded")).to_have_count(2, timeout=PATIENCE_MS)
        for page in watched.windows:
            await expect(page.locator(".heading .badge")).to_have_text("DONE", timeout=PATIENCE_MS)
            assert await page.evaluate("window.isTheSame") is True
        await expect(overview.locator("#tile-best + .value")).to_have_text("1.25")
        await expect(overview.locator("#tile-progress + .value")).to_contain_text("2 of 2")
        best = overview.locator("figure[data-chart=results] .chart-title")
        await expect(best).to_contain_text("best so far 1.25", timeout=PATIENCE_MS)
        await context.close()


async def _lost_fetch(watched: Watched) -> None:
    lost: list[str] = []

    async def abort(route: Route) -> None:
        lost.append(route.request.url)
        await route.abort()

    await watched.table.route("**/trials", abort, times=1)
    watched.report("2222")
    await watched.shows("2222")
    await watched.is_connected(True)
    assert len(lost) == 1


async def _killed(watched: Watched, daemon: Daemon, port: str) -> None:
    """Restart the daemon while the trials continue."""
    await asyncio.to_thread(daemon.kill)
    await watched.is_connected(False)
    watched.report("3333")
    await asyncio.to_thread(daemon.start, "--port", port)
    await watched.shows("3333")
    await watched.is_connected(True)


async def _offline(watched: Watched) -> None:
    await watched.table.context.set_offline(True)
    await watched.is_connected(False)
    watched.report("4444")
    await watched.table.context.set_offline(False)
    await watched.shows("4444")
    await watched.is_connected(True)
