"""NNI 3.0's own web page, unmodified, in a browser with an endpoint of ours: its values agree with our API."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser

from tests.browser.conftest import browser as browser  # a fixture
from tests.browser.conftest import stage as stage  # which it needs
from tests.browser.shared_page import Stage
from tests.live_daemon import Daemon, running_daemon
from tests.upstream.page_driver import NniPage, expect, nni_page
from tests.upstream.page_front import front, static_files

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(1200),  # the first test of a session may install nni
    pytest.mark.asyncio(loop_scope="session"),  # as the browser is
]

#: The third trial fails; the sixth and seventh wait for a file after their intermediate results, later ones before
#: them, as NNI's page falls over results of a trial that it does not know yet.
TRIAL = """
import os, sys, time
import nni
number, x = int(os.environ["NNI_TRIAL_SEQ_ID"]), nni.get_next_parameter()["x"]
print("this is trial", number, flush=True)
while number > 6 and not os.path.exists(os.environ["GATE"]):
    time.sleep(0.1)
for step in range(1, 5):
    nni.report_intermediate_result({"default": x * step / 4, "loss": 1 / step})
if number == 2:
    sys.exit("the data is gone")
while number > 4 and not os.path.exists(os.environ["GATE"]):
    time.sleep(0.1)
nni.report_final_result({"default": x, "loss": number / 10})
"""
#: 102 trials end at once; later ones report once more when a file exists, and then continue.
MANY = """
echo '{"type": "intermediate", "value": 0.25}' >> "$NNI_OUTBOX"
echo '{"type": "intermediate", "value": 0.5}' >> "$NNI_OUTBOX"
if [ "$NNI_TRIAL_SEQ_ID" -lt 102 ]; then
  echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX"; exit
fi
until [ -e "$GATE" ]; do sleep 0.2; done
echo '{"type": "intermediate", "value": 0.875}' >> "$NNI_OUTBOX"
exec sleep 1000
"""
#: Trials by status until the gate opens.
BEGUN = {"SUCCEEDED": 4, "FAILED": 1, "RUNNING": 2}
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}, "batch": {"_type": "choice", "_value": [16, 32]}}


#: The page's address while it is open, by the address of an endpoint.
Fronts = Callable[[str], AbstractAsyncContextManager[str]]


@dataclass(frozen=True)
class Site:
    """An experiment, and the page in front of it."""

    daemon: Daemon
    id: str
    endpoint: str
    gate: Path
    page: NniPage

    async def when(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        return await asyncio.to_thread(self.daemon.wait_for, self.id, holds)

    async def counts(self, **expected: int) -> None:
        await self.when(lambda state: {**state["counts"], **expected} == state["counts"])

    async def rest(self, path: str) -> Any:
        """The experiment in our own API."""
        return await asyncio.to_thread(self.daemon.call, "GET", f"/experiments/{self.id}{path}")

    async def nni(self, path: str) -> Any:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            return (await client.get(f"{self.endpoint}api/v1/nni/{path}")).json()

    async def trials(self) -> list[dict[str, Any]]:
        """By our own API, in the order of their numbers."""
        found = (await self.rest("/trials?limit=1000"))["trials"]
        return sorted(found, key=lambda trial: int(trial["sequenceId"]))

    async def finals(self) -> dict[str, float]:
        """Numeric result by trial."""
        values = {one["trialJobId"]: json.loads(one["value"]) for one in await self.nni("export-data")}
        return {id_: value["default"] if isinstance(value, dict) else value for id_, value in values.items()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The page for all tests of this module."""
    with running_daemon(tmp_path_factory.mktemp("shared"), "--port", "0") as daemon:
        yield daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """The page for a test that lists all experiments."""
    with running_daemon(tmp_path, "--port", "0") as daemon:
        yield daemon


@asynccontextmanager
async def site(
    daemon: Daemon, browser: Browser, fronts: Fronts, prefix: str = "", **fields: Any
) -> AsyncIterator[Site]:
    """A new experiment, which is stopped at the end."""
    folder = _folder(daemon)
    id_ = await asyncio.to_thread(_create, daemon, folder, prefix, **fields)
    async with looked_at(daemon, browser, fronts, id_, folder) as found:
        yield found
    await asyncio.to_thread(_stop, daemon, id_)


def _create(daemon: Daemon, folder: Path, prefix: str, **fields: Any) -> str:
    body = {
        "config": json.dumps(_config(daemon, folder, **fields)),
        "directory": str(folder),
        "environment": {**os.environ, "GATE": str(folder / "gate")},
        "interpreter": sys.executable,
        "endpoint": {"port": 0, "urlPrefix": prefix},
    }
    return str(daemon.call("POST", "/experiments", json=body)["id"])


def _stop(daemon: Daemon, id_: str) -> None:
    daemon.call("POST", f"/experiments/{id_}/stop")


@pytest.fixture(scope="module")
def under_way(shared: Daemon) -> tuple[str, Path]:
    """(id, folder) of an experiment for read-only tests, in the state `begun`."""
    folder = _folder(shared)
    id_ = _create(shared, folder, "my/pre")
    shared.wait_for(id_, lambda state: {**state["counts"], **BEGUN} == state["counts"])
    return id_, folder


def _folder(daemon: Daemon) -> Path:
    """A new folder for the code of an experiment."""
    return Path(tempfile.mkdtemp(dir=daemon.data.parent))


@asynccontextmanager
async def looked_at(daemon: Daemon, browser: Browser, fronts: Fronts, id_: str, folder: Path) -> AsyncIterator[Site]:
    endpoint = (await asyncio.to_thread(daemon.status, id_))["endpoint"]["url"]
    async with fronts(endpoint) as url, nni_page(browser, url, folder / "shots") as page:
        yield Site(daemon, id_, endpoint, folder / "gate", page)


def _config(daemon: Daemon, folder: Path, **fields: Any) -> dict[str, Any]:
    (folder / "trial.py").write_text(TRIAL)
    (folder / "many.sh").write_text(MANY)
    return {
        "experimentName": "seen by NNI",
        "searchSpace": SPACE,
        "trialCommand": f"{sys.executable} trial.py",
        "trialCodeDirectory": str(folder),
        "trialConcurrency": 2,
        "maxTrialNumber": 20,
        "maxExperimentDuration": "1h",
        "experimentWorkingDirectory": str(daemon.data),
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
        **fields,
    }


@pytest.fixture
def fronts(nni3: Path, stage: tuple[Stage, str]) -> Fronts:
    return partial(front, static_files(nni3), stage)


async def begun(site: Site) -> None:
    """Four trials have succeeded, one has failed, two run."""
    await site.counts(**BEGUN)


async def test_overview_shows_the_experiment(
    shared: Daemon, browser: Browser, fronts: Fronts, under_way: tuple[str, Path]
) -> None:
    async with looked_at(shared, browser, fronts, *under_way) as found:
        page = found.page
        await page.open()
        await expect(page.rows()).to_have_count(4)
        await expect(page.page).to_have_url(f"{page.url}oview")
        await expect(page.page.locator(".status-text")).to_have_text("RUNNING")
        await _check_head(found)
        finals = await found.finals()
        best = sorted(finals, key=lambda id_: -finals[id_])
        assert await page.cells("id") == best
        assert list(map(float, await page.cells("accuracy"))) == [round(finals[id_], 6) for id_ in best]
        (points,) = await page.series()
        assert [(point[2], point[1]) for point in points["data"]] == [(id_, finals[id_]) for id_ in best]
        await page.button("Minimize").click()
        await expect(page.page.locator(".bestMetric .focus-text")).to_have_text(f"{finals[best[-1]]:.6f}")
        assert await page.cells("id") == best[::-1]
        await page.row(best[0]).locator("[data-automation-key=_expand] i").click()
        await expect(page.page.locator(".openRow")).to_contain_text("batch")


async def _check_head(site: Site) -> None:
    page, finals = site.page, await site.finals()
    await expect(page.page.locator(".bestMetric .focus-text")).to_have_text(f"{max(finals.values()):.6f}")
    basics = page.page.locator(".overviewBasicInfo")
    for text in ("seen by NNI", site.id, str(site.daemon.data / site.id), "trial.py", "local", "Random"):
        await expect(basics).to_contain_text(text)
    counts = {label: await page.count(label) for label in ("Succeeded", "Running", "Stopped", "Waiting", "Failed")}
    assert counts == {"Succeeded": "4", "Running": "2", "Stopped": "0", "Waiting": "0", "Failed": "1"}
    await expect(page.page.locator(".complete-tirals")).to_have_text("7")
    numbers = page.page.locator(".show-params .number")
    assert await numbers.all_inner_texts() == ["60", "20", "2"]


async def test_charts_show_every_trial(
    shared: Daemon, browser: Browser, fronts: Fronts, under_way: tuple[str, Path]
) -> None:
    async with looked_at(shared, browser, fronts, *under_way) as found:
        page = found.page
        await page.open("detail")
        await expect(page.rows()).to_have_count(7)
        finals, trials = await found.finals(), await found.trials()
        (points,) = await page.series()
        assert {point[2]: point[1] for point in points["data"]} == finals
        await page.page.get_by_role("switch", name="Optimization curve").click()
        await expect(page.page.get_by_role("switch", name="Optimization curve")).to_be_checked()
        line, points = await page.series()
        assert line["data"][-1][1] == max(finals.values()) and len(points["data"]) == 4
        await page.tab("Hyper-parameter")
        await page.drawn(page.page.locator(".parcoords canvas.foreground"))
        axes = page.page.locator(".parcoords .dimension .label")
        assert await axes.all_text_contents() == ["x", "batch", "default", "loss"]
        await page.tab("Duration")
        (bars,) = await page.series()
        assert len(bars["data"]) == 7 and all(seconds >= 0 for seconds in bars["data"])
        await page.tab("Intermediate result")
        lines = await _full_lines(page)
        x = {trial["id"]: trial["parameters"]["x"] for trial in trials}
        assert lines == {id_: pytest.approx([value * step / 4 for step in range(1, 5)]) for id_, value in x.items()}


async def _full_lines(page: Any) -> dict[str, list[float]]:
    """The page requests intermediate results on its own schedule: the first drawing may lack a trial's."""
    async with asyncio.timeout(30):
        while not all((lines := {line["name"]: line["data"] for line in await page.series()}).values()):
            await page.page.wait_for_timeout(200)
    return lines


async def test_table_shows_every_trial(
    shared: Daemon, browser: Browser, fronts: Fronts, under_way: tuple[str, Path]
) -> None:
    async with looked_at(shared, browser, fronts, *under_way) as found:
        page = found.page
        await page.open("detail")
        await expect(page.rows()).to_have_count(7)
        trials = await found.trials()
        assert await page.cells("id") == [trial["id"] for trial in trials]
        assert await page.cells("sequenceId") == [str(number) for number in range(7)]
        assert await page.cells("status") == [trial["status"] for trial in trials]
        shown = [cell.split() for cell in await page.cells("latestAccuracy")]
        assert [float(number) for number, _ in shown] == [round(trial["parameters"]["x"], 6) for trial in trials]
        assert [kind for _, kind in shown] == ["(FINAL)"] * 2 + ["(LATEST)"] + ["(FINAL)"] * 2 + ["(LATEST)"] * 2
        await _check_row(found, trials[1], "this is trial 1", "stderr is empty.")
        await _check_row(found, trials[2], "this is trial 2", "the data is gone")
        await page.row(trials[0]["id"]).get_by_title("Intermediate").click()
        (line,) = await page.series(".compare-modal")
        assert line["data"] == pytest.approx([trials[0]["parameters"]["x"] * step / 4 for step in range(1, 5)])
        await page.button("Close popup modal").click()
        await _check_comparison(found, trials[:2])
        await page.page.get_by_placeholder("Search").fill(trials[3]["id"])
        await page.button("Search").click()
        await expect(page.rows()).to_have_count(1)
        assert await page.cells("id") == [trials[3]["id"]]


async def _check_row(site: Site, trial: dict[str, Any], out: str, error: str) -> None:
    page, id_ = site.page, trial["id"]
    await page.row(id_).locator("[data-automation-key=_expand] i").click()
    row = page.page.locator(".openRow").last
    await expect(row).to_contain_text(f"batch:{trial['parameters']['batch']}")
    await row.get_by_role("tab", name="Log").click()
    await expect(row).to_contain_text(str(site.daemon.data / site.id / "trials" / id_))
    assert out in await page.opened(row.get_by_role("button", name="View trial stdout"))
    assert error in await page.opened(row.get_by_role("button", name="View trial error"))
    assert "trial.log is empty." in await page.opened(row.get_by_role("button", name="View trial log"))


async def _check_comparison(site: Site, trials: list[dict[str, Any]]) -> None:
    page = site.page
    for trial in trials:
        await page.row(trial["id"]).locator(".ms-Checkbox").click()
    await page.button("Compare").click()
    assert {line["name"] for line in await page.series(".compare-modal")} == {trial["id"] for trial in trials}
    table = page.page.locator(".compare-modal-table")
    for trial in trials:
        for value in (trial["id"], trial["parameters"]["x"], trial["parameters"]["batch"]):
            await expect(table).to_contain_text(str(value))
    await page.button("Close popup modal").click()


async def test_trials_are_killed_and_added(shared: Daemon, browser: Browser, fronts: Fronts) -> None:
    async with site(shared, browser, fronts, maxTrialNumber=9) as found:
        await begun(found)
        page, trials = found.page, await found.trials()
        await page.open("detail")
        await page.row(trials[5]["id"]).get_by_title("kill").click()
        await page.button("Yes").click()
        await expect(page.page.get_by_role("dialog")).to_contain_text("had been killed successfully")
        await page.close()
        await page.shows(page.row(trials[5]["id"]), "USER_CANCELED")
        assert (await found.rest(f"/trials/{trials[5]['id']}"))["status"] == "USER_CANCELED"
        await _add_like(found, trials[0])
        await found.when(lambda state: sum(state["counts"].values()) == 9)
        added = (await found.trials())[8]
        assert added["parameters"] == {**trials[0]["parameters"], "x": 0.125}
        await page.shows(page.page.locator("#tableList"), added["id"])
        found.gate.touch()
        await found.when(lambda state: state["status"] == "DONE")
        await page.shows(page.row(added["id"]), "0.125 (FINAL)")


async def _add_like(site: Site, trial: dict[str, Any]) -> None:
    page = site.page
    await site.counts(RUNNING=2, USER_CANCELED=1)  # its place is taken, and so the next number is known
    await page.row(trial["id"]).get_by_title("Customized trial").click()
    await page.page.locator("input[name=x]").fill("0.125")
    await page.button("Submit").click()
    said = page.page.get_by_text("You can find your customized trial by Trial No.")
    await expect(said).to_contain_text("No.8")
    await page.button("OK").click()


async def test_missing_tensorboard_is_reported(
    shared: Daemon, browser: Browser, fronts: Fronts, under_way: tuple[str, Path]
) -> None:
    async with looked_at(shared, browser, fronts, *under_way) as found:
        page = found.page
        page.refused.add("POST tensorboard")
        await page.open("detail")
        await page.rows().first.locator(".ms-Checkbox").click()
        await page.button("TensorBoard").click()
        await expect(page.page.get_by_role("dialog")).to_contain_text("TensorBoard is not installed")
        await page.close()


async def test_limits_are_changed(shared: Daemon, browser: Browser, fronts: Fronts) -> None:
    async with site(shared, browser, fronts, "my/pre") as found:
        await begun(found)
        page = found.page
        await page.open()
        assert "Successfully updated" in await page.edit("maxTrialNumber", 25)
        assert "Successfully updated" in await page.edit("trialConcurrency", 3)
        assert "Successfully updated" in await page.edit("maxExperimentDuration", 90)
        config = (await found.rest(""))["config"]
        changed = ("maxTrialNumber", "trialConcurrency", "maxExperimentDuration")
        assert [config[name] for name in changed] == [25, 3, "90m"]
        await found.counts(RUNNING=3)
        await page.shows(page.page.locator(".trialCount"), "8/25")
        assert await page.count("Running") == "3"
        page.refused.add("PUT experiment")
        refused = await page.edit("trialConcurrency", "9" * 400)  # which the page sends as null
        assert refused.startswith("Failed to update trial trialConcurrency")
        assert "set the number of trials that run" in refused


async def test_panels_show_config_and_logs(
    shared: Daemon, browser: Browser, fronts: Fronts, under_way: tuple[str, Path]
) -> None:
    async with looked_at(shared, browser, fronts, *under_way) as found:
        page = found.page
        await page.open()
        await page.icon("search-space")
        assert json.loads(await page.editor()) == SPACE
        await page.close()
        await page.icon("config")
        shown = json.loads(await page.editor())["params"]
        assert shown["trialConcurrency"] == 2 and shown["trainingService"]["platform"] == "local"
        await page.close()
        await page.icon("summary")
        assert found.id in await page.editor()
        await page.close()
        await page.icon("log")
        dispatcher = await page.editor()
        await page.tab("NNIManager log")
        manager = await page.editor()
        await page.close()
        log = found.daemon.data / found.id / "log"
        assert dispatcher.splitlines()[0].strip() in (log / "dispatcher.log").read_text()
        assert "Loading" not in manager and (await found.trials())[0]["id"] in (log / "nnimanager.log").read_text()


async def test_page_follows_the_experiment(shared: Daemon, browser: Browser, fronts: Fronts) -> None:
    async with site(shared, browser, fronts, maxTrialNumber=8) as found:
        await begun(found)
        page = found.page
        await page.open()
        await expect(page.rows()).to_have_count(4)
        found.gate.touch()
        await found.when(lambda state: state["status"] == "DONE")
        await expect(page.page.locator(".status-text")).to_have_text("DONE")  # automatically, within 10 seconds
        await page.shows(page.page.locator(".trialCount"), "8/8")
        await expect(page.rows()).to_have_count(7)
        assert await page.count("Succeeded") == "7"


async def test_page_shows_more_than_a_hundred_trials(shared: Daemon, browser: Browser, fronts: Fronts) -> None:
    """The page then requests the latest results of all trials, and those of twenty trials at a time."""
    async with site(
        shared, browser, fronts, trialCommand="sh many.sh", trialConcurrency=8, maxTrialNumber=109
    ) as found:
        await found.counts(SUCCEEDED=102, RUNNING=7)
        page = found.page
        await page.open("detail")
        await expect(page.rows()).to_have_count(20)
        (points,) = await page.series()
        assert sorted(point[1] for point in points["data"]) == list(range(102))
        page.calls.clear()
        await page.refresh("Refresh every 20s")
        await expect(page.page.locator(".nav-refresh-num")).to_have_text("20")
        asked = [f"GET metric-data-range/{first}/{first + 20}" for first in range(0, 109, 20)]
        assert "GET metric-data-latest" in page.calls and set(asked) <= set(page.calls)
        assert "GET metric-data" not in page.calls
        found.gate.touch()
        running = [trial["id"] for trial in await found.trials() if trial["status"] == "RUNNING"]
        await _until_reported(found, running)
        await page.refresh("Refresh every 30s")
        await page.page.get_by_role("button", name="Page 6").click()
        await expect(page.rows()).to_have_count(9)
        for id_ in running:
            await expect(page.row(id_)).to_contain_text("0.875 (LATEST)")
        await page.tab("Intermediate result")
        lines = {line["name"]: line["data"] for line in await page.series()}
        ids = [trial["id"] for trial in await found.trials()]
        assert lines == {id_: [0.25, 0.5] + ([0.875] if id_ in running else []) for id_ in ids}
        await page.open()
        await expect(page.page.locator(".bestMetric .focus-text")).to_have_text("101.000000")
        assert await page.cells("accuracy") == [str(number) for number in range(101, 91, -1)]


async def _until_reported(site: Site, running: list[str]) -> None:
    """The running trials' third result has arrived."""
    async with asyncio.timeout(60):
        while True:
            latest = {one["trialJobId"]: one for one in await site.nni("metric-data-latest")}
            if all(latest[id_]["sequence"] == 2 for id_ in running):
                return
            await asyncio.sleep(0.1)


async def test_done_experiment_is_shown_and_viewed_after_its_stop(
    shared: Daemon, browser: Browser, fronts: Fronts
) -> None:
    async with site(shared, browser, fronts, maxTrialNumber=4) as found:
        await found.when(lambda state: state["status"] == "DONE")
        page = found.page
        await page.open()
        await expect(page.page.locator(".status-text")).to_have_text("DONE")
        await expect(page.rows()).to_have_count(3)
        end = page.page.locator(".duration .time .text")
        assert "N/A" not in await end.all_inner_texts()
        (points,) = await page.series()
        assert {point[2]: point[1] for point in points["data"]} == await found.finals()
        await page.icon("Details icon")
        await expect(page.rows()).to_have_count(4)
        for title in ("kill", "Customized trial"):
            await expect(page.rows().first.get_by_title(title)).to_be_disabled()
    viewed = {"id": found.id, "endpoint": {"port": 0, "urlPrefix": "my/pre"}}
    await asyncio.to_thread(shared.call, "POST", "/experiments/view", json=viewed)
    await _check_viewed(shared, browser, fronts, found.id)


async def _check_viewed(shared: Daemon, browser: Browser, fronts: Fronts, id_: str) -> None:
    async with looked_at(shared, browser, fronts, id_, _folder(shared)) as found:
        page = found.page
        await page.open()
        await expect(page.page.locator(".status-text")).to_have_text("VIEWED")
        await expect(page.rows()).to_have_count(3)
        page.refused.add("PUT experiment")
        assert "readonly mode" in await page.edit("maxTrialNumber", 30)
        await page.icon("Details icon")
        await expect(page.rows()).to_have_count(4)
        await page.row((await found.trials())[1]["id"]).locator("[data-automation-key=_expand] i").click()
        await page.page.locator(".openRow").get_by_role("tab", name="Log").click()
        assert "this is trial 1" in await page.opened(page.button("View trial stdout"))
        await page.icon("log")
        await page.tab("NNIManager log")
        assert "Loading" not in await page.editor()


async def test_failed_experiment_is_shown(shared: Daemon, browser: Browser, fronts: Fronts) -> None:
    outdated = {"platform": "scripted", "trials": [{"runnerVersion": "0.5.0"}]}
    async with site(shared, browser, fronts, "my/pre", trialCommand="true", trainingService=outdated) as found:
        await found.when(lambda state: state["status"] == "ERROR")
        page = found.page
        await page.open()
        await expect(page.page.locator(".experiment-error")).to_contain_text("0.5.0")
        await expect(page.page.locator(".status-text")).to_have_text("ERROR")
        await page.button("Learn more").click()
        assert "tuner started" in await page.editor()  # the page shows no other log from here
        await page.open()
        await page.page.locator(".experiment-error .close").click()
        await page.icon("log")
        await page.tab("NNIManager log")
        assert "0.5.0" in await page.editor()


async def test_list_of_experiments_is_shown(daemon: Daemon, browser: Browser, fronts: Fronts) -> None:
    stopped = await _stopped(daemon)
    fields = {"experimentName": "the second", "trialCommand": "sleep 1000"}
    async with site(daemon, browser, fronts, "my/pre", **fields) as found:
        await found.counts(RUNNING=2)
        page = found.page
        await page.open()
        await page.icon("all-experiments")
        await expect(page.rows()).to_have_count(2)
        state = await found.rest("")
        assert await page.cells("id") == [found.id, stopped]
        assert await page.cells("status") == ["RUNNING", "STOPPED"]
        assert await page.cells("experimentName") == ["the second", "seen by NNI"]
        assert await page.cells("port") == [str(state["endpoint"]["port"]), "--"]
        link = page.page.get_by_role("link", name=found.id)
        assert await link.get_attribute("href") == f"{found.endpoint}oview".replace("localhost", "127.0.0.1")
        await page.page.get_by_placeholder("Search the experiment by name or ID").fill("second")
        await expect(page.rows()).to_have_count(1)


async def _stopped(daemon: Daemon) -> str:
    """The id of an experiment with a trial."""
    fields = {"trialCommand": "sh many.sh", "maxTrialNumber": 1}
    id_ = await asyncio.to_thread(_create, daemon, _folder(daemon), "", **fields)
    await asyncio.to_thread(daemon.wait, id_, "DONE")
    await asyncio.to_thread(_stop, daemon, id_)
    return id_
