"""The SVG of the best result so far, for notebooks and the overview without JavaScript."""

from __future__ import annotations

from xml.etree import ElementTree

import httpx
import pytest

from nni_manager.web import best_so_far
from tests.api.world import World

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("maximize", "best"), [(True, 3.0), (False, 1.0)])
def test_drawing_follows_the_direction(maximize: bool, best: float) -> None:
    points = [(0, 2.0, True), (1, 1.0, True), (2, 3.0, True)]
    assert best_so_far._steps(points, maximize=maximize)[-1] == (2, best)
    drawn = best_so_far.drawing(points, maximize=maximize)
    assert drawn.count("<circle") == 3 and "<polyline" in drawn


def test_drawing_is_empty_without_results() -> None:
    assert best_so_far.drawing([(0, None, True), (1, "NaN", True), (2, float("nan"), True)], maximize=True) == ""
    assert best_so_far.drawing([(0, 1.0, True)], maximize=True).count("<circle") == 1


def test_line_of_the_best_skips_results_that_cannot_be_the_best() -> None:
    points = [(0, 9.0, False), (1, 1.0, True), (2, 8.0, False), (3, 2.0, True)]
    assert best_so_far._steps(points, maximize=True) == [(1, 1.0), (3, 1.0), (3, 2.0), (3, 2.0)]
    assert best_so_far._steps(points[:1], maximize=True) == []
    assert best_so_far.drawing(points[:1], maximize=True).count("<circle") == 1


def test_image_without_results_has_a_message() -> None:
    assert "no result yet" in "".join(ElementTree.fromstring(best_so_far.image([], maximize=True)).itertext())


async def test_image_is_standalone_and_follows_the_filters(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", extra_trials=7)
    answers = [await visitor.get(f"/experiments/seeded/best-so-far.svg{query}") for query in ("", "?status=FAILED")]
    assert {answer.headers["Content-Type"].partition(";")[0] for answer in answers} == {"image/svg+xml"}
    assert "default-src 'none'" in answers[0].headers["Content-Security-Policy"]
    counts = [len(ElementTree.fromstring(answer.text).findall(".//{*}circle")) for answer in answers]
    assert counts[0] > counts[1] == 0


async def test_overview_shows_the_image_only_without_scripts(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    html = (await visitor.get("/experiments/seeded?status=FAILED&page=2")).text
    within = html.partition("<noscript>")[2].partition("</noscript>")[0]
    assert 'src="/experiments/seeded/best-so-far.svg?status=FAILED"' in within and "alt=" in within
    assert "<noscript>" not in (await visitor.get("/experiments/seeded/trials")).text
