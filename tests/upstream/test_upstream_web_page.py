"""NNI 3.0's own web page, unmodified, in a browser against a view of ours: what it shows agrees with our API."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, async_playwright

from tests import nni3
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.live_daemon import Daemon
from tests.upstream.page_driver import NniPage, expect, nni_page
from tests.upstream.page_front import front, static_files

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # the first test of a session may install nni

#: The third trial fails; those from the sixth on wait for a file after their intermediate results.
TRIAL = """
import os, sys, time
import nni
number, x = int(os.environ["NNI_TRIAL_SEQ_ID"]), nni.get_next_parameter()["x"]
print("this is trial", number, flush=True)
for step in range(1, 5):
    nni.report_intermediate_result({"default": x * step / 4, "loss": 1 / step})
if number == 2:
    sys.exit("the data is gone")
while number > 4 and not os.path.exists(os.environ["GATE"]):
    time.sleep(0.1)
nni.report_final_result({"default": x, "loss": number / 10})
"""
#: 123 trials end at once, those after them report once more when a file is there, and then run on.
MANY = """
echo '{"type": "intermediate", "value": 0.25}' >> "$NNI_OUTBOX"
echo '{"type": "intermediate", "value": 0.5}' >> "$NNI_OUTBOX"
if [ "$NNI_TRIAL_SEQ_ID" -lt 123 ]; then
  echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX"; exit
fi
until [ -e "$GATE" ]; do sleep 0.2; done
echo '{"type": "intermediate", "value": 0.875}' >> "$NNI_OUTBOX"
exec sleep 1000
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}, "batch": {"_type": "choice", "_value": [16, 32]}}


@dataclass(frozen=True)
class Site:
    """An experiment, and the page in front of it."""

    daemon: Daemon
    id: str
    view: str
    gate: Path
    page: NniPage

    async def when(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        return await asyncio.to_thread(self.daemon.wait_for, self.id, holds)

    async def counts(self, **expected: int) -> None:
        await self.when(lambda state: {**state["counts"], **expected} == state["counts"])

    async def rest(self, path: str) -> Any:
        """Our own API of the experiment."""
        return await asyncio.to_thread(self.daemon.call, "GET", f"/experiments/{self.id}{path}")

    async def nni(self, path: str) -> Any:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            return (await client.get(f"{self.view}api/v1/nni/{path}")).json()

    async def trials(self) -> list[dict[str, Any]]:
        """By our own API, with `final`: the number that counts, or None."""
        found = (await self.rest("/trials?limit=1000"))["trials"]
        return sorted(found, key=lambda trial: int(trial["sequenceId"]))

    async def finals(self) -> dict[str, float]:
        """The number that counts by trial."""
        values = {one["trialJobId"]: json.loads(one["value"]) for one in await self.nni("export-data")}
        return {id_: value["default"] if isinstance(value, dict) else value for id_, value in values.items()}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    for name in ("data", "home", "code", "shots"):
        (tmp_path / name).mkdir()
    daemon = Daemon(tmp_path / "data").start("--port", "0")
    yield daemon
    daemon.call("POST", "/experiments/stop")
    daemon.terminate()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@asynccontextmanager
async def site(
    daemon: Daemon, browser: Browser, static: Path, prefix: str = "", **fields: Any
) -> AsyncIterator[Site]:
    """Where an experiment was just created."""
    folder = daemon.data.parent
    view = {"port": 0, "urlPrefix": prefix}
    body = {
        "config": json.dumps(_config(folder, **fields)), "directory": str(folder / "code"),
        "environment": {**os.environ, "GATE": str(folder / "gate")}, "interpreter": sys.executable, "view": view,
    }  # fmt: skip
    id_ = (await asyncio.to_thread(daemon.call, "POST", "/experiments", json=body))["id"]
    async with looked_at(daemon, browser, static, id_) as found:
        yield found


@asynccontextmanager
async def looked_at(daemon: Daemon, browser: Browser, static: Path, id_: str) -> AsyncIterator[Site]:
    view = (await asyncio.to_thread(daemon.status, id_))["view"]["url"]
    folder = daemon.data.parent
    async with front(static, view) as url, nni_page(browser, url, folder / "shots") as page:
        yield Site(daemon, id_, view, folder / "gate", page)


def _config(folder: Path, **fields: Any) -> dict[str, Any]:
    (folder / "code" / "trial.py").write_text(TRIAL)
    return {
        "experimentName": "seen by NNI", "searchSpace": SPACE, "trialCommand": f"{sys.executable} trial.py",
        "trialCodeDirectory": str(folder / "code"), "trialConcurrency": 2, "maxTrialNumber": 20,
        "maxExperimentDuration": "1h", "experimentWorkingDirectory": str(folder / "data"),
        "tuner": {"name": "Random"}, "trainingService": {"platform": "local"}, **fields,
    }  # fmt: skip


@pytest.fixture
def static(nni3: Path) -> Path:
    return static_files(nni3)


assert nni3.VENV  # the fixture of that name is in conftest
