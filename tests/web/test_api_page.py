"""The page that documents the API: every call and model of the OpenAPI document, nothing from other hosts."""

from __future__ import annotations

import httpx
import pytest

from nni_manager.analysis.service import Analysis
from nni_manager.api.application import create_api, create_application
from nni_manager.web import api_page
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.world import World
from tests.web.test_pages import Page, get

pytestmark = pytest.mark.unit


async def test_every_call_and_model_is_on_the_page(visitor: httpx.AsyncClient, world: World) -> None:
    document = create_api(world.context).openapi()
    page = await get(visitor, "/docs")
    ids = set(page.values("details", "id")) | set(page.values("article", "id"))
    calls = {one["operationId"] for operations in document["paths"].values() for one in operations.values()}
    models = {f"model-{name}" for name in document["components"]["schemas"]}
    assert calls | models <= ids
    for path, operations in document["paths"].items():
        assert path in page.text
        assert all(" ".join(one["summary"].split()) in page.text for one in operations.values())


async def test_every_link_within_the_page_has_a_target(visitor: httpx.AsyncClient) -> None:
    page = await get(visitor, "/docs")
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    within = [link for link in page.values("a", "href") if link.startswith("#")]
    assert len(within) > 100 and {link[1:] for link in within} <= ids


async def test_nothing_comes_from_elsewhere(visitor: httpx.AsyncClient) -> None:
    answer = await visitor.get("/docs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    page = Page(answer.text)
    loaded = [*page.values("link", "href"), *page.values("script", "src"), *page.values("img", "src")]
    assert loaded and all(address.startswith("/static/") for address in loaded)
    assert "unsafe-eval" not in answer.headers["content-security-policy"]


async def test_heading_of_every_page_links_to_the_api_page(visitor: httpx.AsyncClient) -> None:
    assert "/docs" in (await get(visitor, "/")).values("a", "href")


async def test_address_without_a_description_names_the_service(world: World) -> None:
    analysis: Analysis = world.analysis
    pages = create_pages(PagesContext(commands=world.commands, version="1", analysis=analysis))
    async with world.calling(create_application(world.context, pages=pages)) as client:
        assert "nni-manager serve" in (await get(client, "/docs", 404)).text


def test_schema_types_are_shown_as_text() -> None:
    schemas = {
        "many": {"type": "array", "items": {"$ref": "#/components/schemas/Trial"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "one": {"enum": ["a", "b"]},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "free": {},
    }
    words = {name: "".join(text for text, _ in api_page.types(schema)) for name, schema in schemas.items()}
    assert words == {
        "many": "list of Trial",
        "maybe": "integer or null",
        "one": "a | b",
        "map": "object with values number",
        "free": "any",
    }
    assert api_page.types(schemas["many"])[1] == ("Trial", "Trial")


async def test_required_parameters_and_fields_are_marked(visitor: httpx.AsyncClient, world: World) -> None:
    document = create_api(world.context).openapi()
    page = (await visitor.get("/docs")).text
    calls = [call for operations in document["paths"].values() for call in operations.values()]
    parameters = sum(one.get("required", False) for call in calls for one in call.get("parameters", ()))
    fields = sum(len(schema.get("required", ())) for schema in document["components"]["schemas"].values())
    assert page.count(" required</small>") == parameters + fields > 100
