"""Contents of an experiment's report, and what it must not contain."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.store.experiment import experiments
from nni_manager.web import report, static_files
from tests.api.world import World
from tests.browser.objectives import with_objectives

pytestmark = [pytest.mark.unit, pytest.mark.timeout(180)]  # the analysis process has a low priority

EXPERIMENTS = "/api/v1/experiments"
_BAD = "</script><img src=x onerror=alert(1)>"


async def report_of(visitor: httpx.AsyncClient, id: str) -> str:
    answer = await visitor.get(f"{EXPERIMENTS}/{id}/report")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{id}-report.html"'
    assert "sandbox" in answer.headers["content-security-policy"]
    return answer.text


def held(html: str, id: str) -> bytes:
    found = re.search(rf'<script type="text/plain" id="{id}">([A-Za-z0-9+/=]+)</script>', html)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1]))


async def test_report_has_answers_config_and_best_trials(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    html = await report_of(visitor, "seeded")
    answers = json.loads(held(html, "answers"))
    asked = {one["question"] for one in answers["asked"]}
    assert asked >= {"columns", "results", "curves", "parallel", "effect", "importance", "timeline", "distribution"}
    for words in ("good1", "0.875", "python3 trial.py", "1 FAILED", "were not recorded"):
        assert words in html
    assert len(html) < 2.5e6


async def test_report_has_pareto_front_and_violating_trials(visitor: httpx.AsyncClient, world: World) -> None:
    await with_objectives(world, "many", 60)
    answers = json.loads(held(await report_of(visitor, "many"), "answers"))
    told = [one for one in answers["asked"] if one["question"] == "pareto"]
    known = (await visitor.get(f"{EXPERIMENTS}/many/analysis/pareto")).json()
    assert told[0]["choice"] == {} and told[0]["answer"]["points"] == known["points"]
    assert set(known["points"]["feasible"]) == {True, False} and sum(known["points"]["front"]) == known["frontSize"]
    names = [one["name"] for one in known["objectives"]]
    assert {(one["choice"]["a"], one["choice"]["b"]) for one in told[1:]} == set(itertools.permutations(names, 2))


async def test_plotly_is_in_the_report(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    assert held(await report_of(visitor, "seeded"), "plotly") == gzip.decompress(static_files.compressed())


async def test_nothing_is_loaded_from_elsewhere(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    html = await report_of(visitor, "seeded")
    assert "default-src 'none'" in html
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', html) == []


async def test_stored_text_cannot_close_an_element(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded", experimentName=_BAD, searchSpace={_BAD: {"_type": "choice", "_value": [_BAD]}})
    record = {**_RECORD, "code": {**_RECORD["code"], "diff": _BAD}}
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        experiments.put_provenance(connection, record)
    html = await report_of(visitor, "seeded")
    assert _BAD not in html and "<img" not in html
    assert "&lt;/script&gt;&lt;img" in html


async def test_secrets_of_the_config_are_masked(visitor: httpx.AsyncClient, world: World) -> None:
    service = {
        "platform": "remote",
        "machineList": [{"host": "box", "user": "me", "password": "open sesame"}],
    }
    await world.add("seeded", trainingService=service)
    html = await report_of(visitor, "seeded")
    assert "open sesame" not in html


async def test_report_has_the_state_of_the_code(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        experiments.put_provenance(connection, _RECORD)
    html = await report_of(visitor, "seeded")
    for words in ("abc123", "numpy==2.0", "laptop", "-old\n+new"):
        assert words in html
    page = (await visitor.get("/experiments/seeded/config")).text
    for words in ("To repeat it", "abc123", "numpy==2.0", "laptop"):
        assert words in page


async def test_unknown_experiment_has_no_report(visitor: httpx.AsyncClient) -> None:
    assert (await visitor.get(f"{EXPERIMENTS}/absent/report")).status_code == 404


async def test_page_links_to_the_report(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    assert f'href="{EXPERIMENTS}/seeded/report"' in (await visitor.get("/experiments/seeded")).text


def test_every_module_of_the_report_is_in_its_map() -> None:
    found: dict[str, str] = json.loads(report.import_map())["imports"]
    texts = [base64.b64decode(address.partition(",")[2]).decode() for address in found.values()]
    imported = {name for text in texts for name in re.findall(r'from "([^"]+)"', text)}
    assert imported <= set(found) and report.BEGIN in found
    assert not any("fetch(" in text or "EventSource" in text for text in texts)


def test_own_files_cannot_close_their_element() -> None:
    for path in Path(static_files.OWN).rglob("*"):
        if path.suffix in (".css", ".js"):
            assert not re.search(r"</(script|style)", path.read_text(), re.IGNORECASE)


_RECORD: dict[str, Any] = {
    "collectedMs": 1,
    "host": "laptop",
    "system": "Linux",
    "manager": "1.2.3",
    "seed": 5,
    "python": {
        "executable": "/usr/bin/python3",
        "version": "3.12.4",
        "packages": [{"name": "numpy", "version": "2.0"}],
        "problem": "",
    },
    "code": {
        "directory": "/home/me/code",
        "commit": "abc123",
        "branch": "main",
        "remote": "",
        "diff": "-old\n+new\n",
        "isDiffCut": False,
        "maskedValues": 0,
        "untracked": [],
        "problem": "",
    },
}
