"""A cluster, or a webhook in it, that repeats what it was sent: no refusal shows our token or a Secret's values."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import ApiClient, Configuration

from nni_manager.platform_kit.kubernetes.client import Client, Refusal

pytestmark = pytest.mark.unit

TOKEN, VALUE = "t0ken-of-the-bees-and/wasps", "v+lue-of-the-bees"
ENCODED = base64.b64encode(VALUE.encode()).decode()


async def echo(request: web.Request) -> web.Response:
    """Repeats the head and the body, as JSON or, below `/plain`, as 600 characters and what follows."""
    said = f"{request.headers['Authorization']} {await request.text()}"
    if request.path == "/plain":
        return web.Response(status=400, text="x" * (495 - len("Bearer ")) + said)
    causes = [{"message": said, "field": "data"}]
    status: dict[str, Any] = {"kind": "Status", "reason": "Invalid", "message": said, "details": {"causes": causes}}
    return web.json_response(status, status=422)


@pytest.mark.parametrize("path", ["/json", "/plain"])
@pytest.mark.parametrize("values", [{"stringData": {"token": VALUE}}, {"data": {"token": ENCODED}}])
async def test_a_refusal_shows_no_secret(path: str, values: dict[str, object]) -> None:
    application = web.Application()
    application.router.add_post("/{rest:.*}", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    settings = Configuration(host=f"http://127.0.0.1:{port}", api_key={"BearerToken": f"Bearer {TOKEN}"})
    client = Client(ApiClient(settings))
    try:
        with pytest.raises(Refusal) as refused:
            await client.call("POST", path, body={"kind": "Secret", **values})
    finally:
        await client.close()
        await runner.cleanup()
    shown = f"{refused.value} {refused.value.details} {refused.value!r}"
    assert "***" in shown
    for part in (TOKEN, TOKEN[:6], VALUE, ENCODED, ENCODED.rstrip("=")):
        assert part not in shown
