"""Static files: our own are revalidated, plotly's script is compressed and immutable."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from nni_manager.web import static_files
from tests.api.world import World

pytestmark = pytest.mark.unit

CHARTS = Path(static_files.__file__).parent / "static" / "charts"


async def test_plotly_script_is_compressed_and_immutable(visitor: httpx.AsyncClient) -> None:
    address = f"/static/{static_files.plotly_script()}"
    answer = await visitor.get(address, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/javascript")
    assert answer.headers["Content-Encoding"] == "gzip" and answer.headers["Vary"] == "Accept-Encoding"
    assert "immutable" in answer.headers["Cache-Control"]
    plain = await visitor.get(address, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers and plain.content == answer.content
    assert int(answer.headers["Content-Length"]) < len(plain.content) / 2
    assert b"plotly.js v" in plain.content[:400]


async def test_other_plotly_release_is_not_cached(visitor: httpx.AsyncClient) -> None:
    answer = await visitor.get("/static/plotly.min.js?v=0", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Cache-Control"] == "no-cache"


async def test_own_files_are_revalidated(visitor: httpx.AsyncClient) -> None:
    first = await visitor.get("/static/charts/mount.js")
    assert first.headers["Cache-Control"] == "no-cache"
    again = await visitor.get("/static/charts/mount.js", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304 and again.content == b""


async def test_every_chart_of_the_page_has_its_module(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    html = (await visitor.get("/experiments/seeded")).text
    names = set(re.findall(r'data-chart="(\w+)"', html))
    assert len(names) == 9 and all((CHARTS / f"{name}.js").is_file() for name in names)
    listed = set(re.findall(r'^  "(\w+)",$', (CHARTS / "mount.js").read_text(), re.MULTILINE))
    assert names <= listed
    assert f'data-plotly="/static/{static_files.plotly_script()}"' in html


def test_modules_load_nothing_from_other_hosts() -> None:
    for path in CHARTS.rglob("*.js"):
        text = path.read_text()
        assert len(text.splitlines()) <= 200, path.name
        assert not re.search(r"\beval\(|new Function|scattergl|parcoords|Math\.(min|max)\(\.\.\.", text), path.name
        assert set(re.findall(r"https?://[^\"`/ ]+", text)) <= {"http://www.w3.org"}, path.name
