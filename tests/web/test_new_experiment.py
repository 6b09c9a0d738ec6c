"""A new experiment from a pasted or uploaded file: errors at their lines, or the experiment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from nni_manager.api.application import create_application
from nni_manager.config import experiment_file
from nni_manager.domain.errors import ConfigInvalid
from nni_manager.web import new_page
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.world import World
from tests.web.test_pages import Page, get

pytestmark = pytest.mark.unit


async def send(visitor: httpx.AsyncClient, text: str, action: str = "check", **files: bytes) -> httpx.Response:
    """Send the form like a browser; `file`: an uploaded file."""
    uploaded = {name: ("experiment.yml", content, "application/yaml") for name, content in files.items()}
    none = {} if files else {"file": ("", b"", "application/octet-stream")}
    return await visitor.post("/new", data={"config": text, "action": action}, files={**uploaded, **none})


def right(world: World, **fields: object) -> str:
    return yaml.safe_dump(world.config(**fields), sort_keys=False)


async def test_errors_are_shown_at_their_lines(visitor: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    text = right(world, trialConcurrency=0, tuner={"name": "TPEE"})
    answer = await send(visitor, text)
    assert answer.status_code == 400
    page = Page(answer.text)
    with pytest.raises(ConfigInvalid) as caught:
        experiment_file.load(text, directory=tmp_path)
    assert len(caught.value.problems) == 2
    for problem in caught.value.problems:
        assert f"line {problem.line}: {problem.field}: {problem.message}" in page.text
    assert "2 errors; no experiment was created" in page.text
    assert (await visitor.get("/api/v1/experiments")).json()["total"] == 0


async def test_paths_must_be_absolute(visitor: httpx.AsyncClient, world: World) -> None:
    answer = await send(visitor, right(world, trialCodeDirectory="code"))
    assert (
        answer.status_code == 400
        and "code must be an absolute path, because the daemon is on" in Page(answer.text).text
    )
    missing = await send(visitor, right(world, trialCodeDirectory=None))
    assert "trialCodeDirectory" in missing.text and missing.status_code == 400
    assert "Its paths must be absolute" in (await get(visitor, "/new")).text


async def test_valid_file_is_checked_then_started(visitor: httpx.AsyncClient, world: World) -> None:
    checked = await send(visitor, right(world, tuner={"name": "TPE"}))
    assert checked.status_code == 200 and "The file is valid. 1 warning" in Page(checked.text).text
    assert "not set, so the lowest result counts as best" in checked.text
    assert (await visitor.get("/api/v1/experiments")).json()["total"] == 0
    started = await send(visitor, right(world), "start")
    assert started.status_code == 303, started.text
    assert "digits" in (await get(visitor, started.headers["Location"])).text


async def test_uploaded_file_overrides_the_field(visitor: httpx.AsyncClient, world: World) -> None:
    started = await send(visitor, "nothing: here", "start", file=right(world, experimentName="über").encode())
    assert started.status_code == 303
    [listed] = (await visitor.get("/api/v1/experiments")).json()["experiments"]
    assert listed["name"] == "über"
    refused = await send(visitor, "", "start", file=b"\xff\xfe\x00")
    assert refused.status_code == 400 and "not UTF-8" in refused.text


@pytest.mark.parametrize("text", ["", "a: [", "just words", "<script>alert(1)</script>: 1"])
async def test_text_that_is_not_an_experiment_is_refused(visitor: httpx.AsyncClient, text: str) -> None:
    answer = await send(visitor, text, "start")
    assert answer.status_code == 400 and "wrong" in answer.text and "<script>alert" not in answer.text


async def test_large_file_is_read_outside_the_event_loop(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, readers = new_page.message_from_bytes, []

    def read(*given: Any, **options: Any) -> Any:
        readers.append(threading.get_ident())
        return parse(*given, **options)

    monkeypatch.setattr(new_page, "message_from_bytes", read)
    checked = await send(visitor, "", file=f"{right(world)}# {'x' * 2**18}\n".encode())
    assert checked.status_code == 200 and len(readers) == 1 and readers != [threading.get_ident()]


async def test_form_of_another_type_is_refused(visitor: httpx.AsyncClient) -> None:
    answer = await visitor.post("/new", data={"config": "x"})
    assert answer.status_code == 400 and "multipart/form-data" in answer.text


async def test_other_sites_cannot_send_it(visitor: httpx.AsyncClient, world: World) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await visitor.post("/new", files={"config": (None, right(world))}, headers=headers)
        assert answer.status_code == 403


async def test_read_token_gets_no_form_and_is_refused(world: World) -> None:
    async def never(_: str) -> None:
        raise AssertionError("it was read")

    context = PagesContext(commands=world.commands, version="1", analysis=world.analysis, read_experiment=never)  # type: ignore[arg-type]
    application = create_application(world.context, token="t" * 20, read_token="r" * 20, pages=create_pages(context))
    async with world.calling(application, headers={"Authorization": f"Bearer {'r' * 20}"}) as reader:
        assert (await reader.get("/new")).status_code == 409
        assert (await reader.post("/new", files={"config": (None, "x")})).status_code == 403
        page = await get(reader, "/")
        assert "/new" not in page.values("a", "href")
        for path in ("/platforms", "/"):
            assert (await get(reader, path)).values("form", "method").count("post") == 0


async def test_page_is_missing_without_a_file_parser(world: World) -> None:
    context = PagesContext(commands=world.commands, version="1", analysis=world.analysis)
    async with world.calling(create_application(world.context, pages=create_pages(context))) as visitor:
        assert (await visitor.get("/new")).status_code == 404
