"""A cluster, or a webhook in it, that repeats what it was sent: no refusal shows our token or a Secret's values."""

from __future__ import annotations

import base64
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes_asyncio.client import ApiClient, Configuration

from nni_manager.domain.errors import BadCredentials
from nni_manager.kubernetes.api.access import Access, load
from nni_manager.kubernetes.api.client import Client, Refusal

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
    shown = f"{refused.value} {refused.value!r}"
    assert "***" in shown
    for part in (TOKEN, TOKEN[:6], VALUE, ENCODED, ENCODED.rstrip("=")):
        assert part not in shown


WORDS = "no login for {word} Bearer {bearer} eyJhbGciOi.eyJzdWIi.c2lnbmF0dXJl https://bee:{word}@login.example"


@pytest.mark.parametrize("way", ["env", "args", "one argument", "another user"])
async def test_plug_in_output_shows_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str) -> None:
    said = WORDS.format(word=VALUE, bearer=TOKEN) + " " + "z" * 2000
    plug_in = tmp_path / "plug_in.py"
    plug_in.write_text(f"import sys; sys.exit({said!r})")
    arguments = {"args": ["--client-secret", VALUE], "one argument": [f"--password={VALUE}"]}.get(way, [])
    called: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(plug_in), *arguments],
        "env": [{"name": "LOGIN", "value": VALUE}] if way == "env" else None,
    }
    users = [{"name": "bee", "user": {"exec": called}}, {"name": "wasp", "user": {"username": "w", "password": VALUE}}]
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "users": users,
                "clusters": [{"name": "c", "cluster": {"server": "https://k:6443"}}],
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "bee"}}],
            }
        )
    )
    with pytest.raises(BadCredentials, match=r"exec: process returned 1\. no login for") as refused:
        await load(Access(kubeconfig=str(path)), tmp_path)
    shown = str(refused.value)
    assert len(shown) < 1000 and shown.endswith("test it with `kubectl get pods`")
    assert caplog.text == "", "the library logs nothing"
    for part in (VALUE, TOKEN, "eyJzdWIi", "c2lnbmF0dXJl"):
        assert part not in shown


async def test_repeated_credential_reads_add_one_filter(tmp_path: Path) -> None:
    log = logging.getLogger("kubernetes_asyncio.config.kube_config")
    counts = []
    for _ in range(3):
        with pytest.raises(BadCredentials, match="does not exist"):
            await load(Access(kubeconfig=str(tmp_path / "gone")), tmp_path)
        counts.append(len(log.filters))
    assert counts[0] == counts[1] == counts[2] > 0
