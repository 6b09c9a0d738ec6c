"""What Azure's storage, or azure-identity, repeats of a call is shown without what let it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import pytest

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platforms.aml.account import Tokens
from nni_manager.platforms.aml.assets import Blobs

pytestmark = pytest.mark.unit

TOKEN, SIGNATURE = "t0ken/of+the-bees", "s1gnature/of+the=bees"
SIGNED = "https://there/c/b?se=1&sig=s1gnature%2Fof%2Bthe%3Dbees"


class GivenTokens(Tokens):
    def __init__(self) -> None:
        super().__init__("")

    async def token(self, scope: str) -> str:
        return TOKEN

    async def close(self) -> None: ...


def echo(request: httpx.Request) -> httpx.Response:
    said = f"{request.headers.get('authorization', '')} {request.url}"
    return httpx.Response(400, text="x" * (290 - len("Bearer ")) + said)


@pytest.mark.parametrize("call", [lambda blobs: blobs.put("name", b""), lambda blobs: blobs.upload(SIGNED, b"")])
async def test_a_refusal_of_the_storage_shows_no_secret(call: Callable[[Blobs], Awaitable[None]]) -> None:
    blobs = Blobs("https://there/c", GivenTokens(), httpx.MockTransport(echo))
    with pytest.raises(PlatformUnavailable) as refused:
        await call(blobs)
    await blobs.close()
    shown = str(refused.value)
    for secret in (TOKEN, TOKEN[:5], SIGNATURE, "s1gnature"):
        assert secret not in shown


async def test_a_login_that_fails_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("azure.core.exceptions")
    secret = "cl1ent-secret-of-the-bees"
    monkeypatch.setenv("AZURE_CLIENT_SECRET", secret)

    class Refusing:
        async def get_token(self, scope: str) -> None:
            raise errors.ClientAuthenticationError("x" * 295 + secret)

    tokens = Tokens("")
    monkeypatch.setattr(tokens, "_credential", Refusing())
    with pytest.raises(BadCredentials) as refused:
        await tokens.token("scope")
    assert secret not in str(refused.value) and secret[:3] not in str(refused.value)
