"""Takes the screenshot in README: the page of a real search, in Chromium (`make screenshot`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.acceptance.command_line import command_line
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.docs.pages import ROOT

#: Pixels; more is hardly seen in a README.
SIZE = {"width": 1280, "height": 800}


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="search-", dir="/tmp") as folder, command_line(Path(folder)) as line:
        line.serve("--host", "127.0.0.1", "--port", "0")
        (listener,) = [one for one in line.daemon.call("GET", "/daemon")["listeners"] if one["kind"] == "service"]
        line.good("create", "--config", ROOT / "configs" / "digits-tpe.yml")
        (experiment,) = line.daemon.call("GET", "/experiments")["experiments"]
        line.daemon.wait(experiment["id"], "DONE", timeout_s=300)
        _take(f"{listener['address']}/experiments/{experiment['id']}", file)


def _take(address: str, file: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        page.locator("figure[data-chart=curves] .chart-sketch").wait_for()
        page.screenshot(path=str(file))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
