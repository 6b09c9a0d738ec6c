"""The workspace's blob container, through which jobs and we exchange files: a few calls of its REST API."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from email.utils import formatdate
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.platforms.aml.account import STORAGE_SCOPE, Tokens

_TIMEOUT_S = 30.0
_VERSION = "2021-08-06"
_MOST_WORDS = 300


class Blobs:
    """The workspace's blob container. `url`: its address, without a slash at its end. `transport`: for tests."""

    def __init__(self, url: str, tokens: Tokens, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._tokens = tokens
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, transport=transport)

    async def close(self) -> None:
        await self._client.aclose()

    async def put(self, name: str, data: bytes) -> None:
        await self._ask("PUT", f"{self._url}/{quote(name)}", headers={"x-ms-blob-type": "BlockBlob"}, content=data)

    async def upload(self, place: str, data: bytes) -> None:
        """Writes a blob at an address that says by itself that we may."""
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": _VERSION}
        await self._send("PUT", place, headers=headers, content=data, secret=_signature_in(place))

    async def read(self, name: str, start: int, limit: int) -> bytes:
        """At most `limit` bytes of a blob from `start` on; empty: its end, or no such blob."""
        headers = {"Range": f"bytes={start}-{start + limit - 1}"}
        response = await self._ask("GET", f"{self._url}/{quote(name)}", headers=headers, quiet=(404, 416))
        if response.status_code in (404, 416):
            return b""
        return (response.content if response.status_code == 206 else response.content[start:])[:limit]

    async def sizes(self, prefix: str) -> Mapping[str, int]:
        """The sizes in bytes of all blobs with a name that begins with `prefix`, by name."""
        found: dict[str, int] = {}
        marker = ""
        while True:
            params = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}
            response = await self._ask("GET", self._url, params=params)
            try:
                tree = ElementTree.fromstring(response.content)  # noqa: S314
            except ElementTree.ParseError:
                raise PlatformUnavailable("the workspace's storage answers with something that is no list") from None
            for blob in tree.iter("Blob"):
                size = blob.findtext("Properties/Content-Length") or "0"
                found[blob.findtext("Name") or ""] = int(size) if size.isdigit() else 0
            marker = tree.findtext("NextMarker") or ""
            if not marker:
                return found

    async def delete(self, name: str) -> None:
        await self._ask("DELETE", f"{self._url}/{quote(name)}", quiet=(404,))

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = {},
        params: Mapping[str, str] = {},
        content: bytes | None = None,
        quiet: tuple[int, ...] = (),
    ) -> httpx.Response:
        token = await self._tokens.token(STORAGE_SCOPE)
        own = {"Authorization": f"Bearer {token}", "x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True)}
        return await self._send(
            method, url, headers={**own, **headers}, params=params, content=content, quiet=quiet, secret=token
        )

    async def _send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        quiet: tuple[int, ...] = (),
        secret: str = "",
    ) -> httpx.Response:
        """`secret`: by which the call is let in, and which no sentence shows."""
        try:
            response = await self._client.request(method, url, headers=headers, params=params or None, content=content)
        except httpx.HTTPError as error:
            raise PlatformUnavailable(
                f"the workspace's storage cannot be reached ({type(error).__name__})", refused=True
            ) from None
        if response.is_success or response.status_code in quiet:
            return response
        words = (
            SecretTexts(secret).shown(response.text, _MOST_WORDS)
            if response.status_code != 403
            else "give yourself Storage Blob Data Contributor"
        )
        raise PlatformUnavailable(f"the workspace's storage answers {response.status_code}: {words}", refused=True)


def _signature_in(place: str) -> str:
    """The signature of an address that says by itself that it may be used; empty: it has none."""
    return parse_qs(urlsplit(place).query).get("sig", [""])[0]
