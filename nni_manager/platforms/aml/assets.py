"""Workspace assets that all trials share: the code, identified by its content, and an environment for the image.

Each asset is created once. Two experiments may create the same code asset at the same time: each uploads to its own
address, and the service keeps the first, as an asset's path cannot change. Its version is the hash of its content, so
either upload is correct.

`Blobs` is the workspace's blob container, through which jobs and the manager exchange files.
"""

from __future__ import annotations

import asyncio
import hashlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.payload import runner_archive
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.platforms.aml import job
from nni_manager.platforms.aml.account import STORAGE_SCOPE, AmlAccount, Tokens
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.shared_storage.storage_folders import packed
from nni_manager.web_services import authorities
from nni_manager.web_services.account import Refused

_NAME = "nni-trial-code"


class Assets:
    """The assets of one experiment. `code`: `Host.code`."""

    def __init__(self, config: AmlConfig, code: Callable[[], Awaitable[Path]]) -> None:
        self._config = config
        self._code = code
        self._putting = asyncio.Lock()
        #: Archive → id of its asset.
        self._known: dict[Path, str] = {}

    async def put(self, account: AmlAccount, blobs: Blobs) -> str:
        """Id of the code asset; the environment exists, too. Raises SubmitRejected, PlatformUnavailable."""
        archive = await packed(self._code)
        async with self._putting:
            if archive not in self._known:
                path = f"environments/{job.environment_name(self._config)}/versions/1"
                if await account.get(path) is None:
                    await _put_or_find(account, path, {"image": self._config.docker_image, "osType": "Linux"})
                self._known[archive] = await self._put_code(account, blobs, archive)
            return self._known[archive]

    async def _put_code(self, account: AmlAccount, blobs: Blobs, archive: Path) -> str:
        code = await asyncio.to_thread(archive.read_bytes)
        files = {job.START_FILE: job.START.encode(), job.RUNNER_FILE: runner_archive(), job.CODE_FILE: code}
        version = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in files.values())).hexdigest()[:32]
        path = f"codes/{_NAME}/versions/{version}"
        if await account.get(path) is None:
            slot = (await account.post(f"{path}/startPendingUpload", _SLOT)).json()
            blob_uri, signed_uri = _places(slot)
            place, _, signature = signed_uri.partition("?")
            for name, data in files.items():
                await blobs.upload(f"{place.rstrip('/')}/{version}/{name}?{signature}", data)
            await _put_or_find(account, path, {"codeUri": f"{blob_uri.rstrip('/')}/{version}"})
        return f"{account.resource}/{path}"


async def _put_or_find(account: AmlAccount, path: str, properties: Json) -> None:
    """Creates an asset, or keeps one that exists by now. Raises Refused if neither is possible."""
    try:
        await account.put(path, {"properties": properties})
    except Refused:
        if await account.get(path) is None:
            raise


_SLOT = {"pendingUploadType": "TemporaryBlobReference"}


def _places(slot: Any) -> tuple[str, str]:
    """The address of the code, and the same address with write permission."""
    try:
        reference = slot["blobReferenceForConsumption"]
        return str(reference["blobUri"]), str(reference["credential"]["sasUri"])
    except (KeyError, TypeError):
        raise PlatformUnavailable("Azure ML returned no upload address for the code; retrying", refused=True) from None


_TIMEOUT_S = 30.0
_VERSION = "2021-08-06"
_MOST_WORDS = 300


class Blobs:
    """The workspace's blob container. `url`: its address, without a trailing slash. `transport`: for tests."""

    def __init__(self, url: str, tokens: Tokens, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._tokens = tokens
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, transport=transport, verify=authorities.trusted())

    async def close(self) -> None:
        await self._client.aclose()

    async def put(self, name: str, data: bytes) -> None:
        await self._ask("PUT", f"{self._url}/{quote(name)}", headers={"x-ms-blob-type": "BlockBlob"}, content=data)

    async def upload(self, place: str, data: bytes) -> None:
        """Writes a blob at an address that includes the permission to write."""
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": _VERSION}
        signature = parse_qs(urlsplit(place).query).get("sig", [""])[0]
        await self._send("PUT", place, headers=headers, content=data, secret=signature)

    async def read(self, name: str, start: int, limit: int) -> bytes:
        """At most `limit` bytes of a blob from `start` on; empty: its end, or the blob does not exist."""
        headers = {"Range": f"bytes={start}-{start + limit - 1}"}
        response = await self._ask("GET", f"{self._url}/{quote(name)}", headers=headers, quiet=(404, 416))
        if response.status_code in (404, 416):
            return b""
        return (response.content if response.status_code == 206 else response.content[start:])[:limit]

    async def sizes(self, prefix: str) -> Mapping[str, int]:
        """Sizes in bytes of all blobs whose names begin with `prefix`, by name."""
        found: dict[str, int] = {}
        marker = ""
        while True:
            params = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}
            response = await self._ask("GET", self._url, params=params)
            try:
                tree = ElementTree.fromstring(response.content)  # noqa: S314 - expat bounds what entities grow to
            except ElementTree.ParseError:
                raise PlatformUnavailable("the workspace's storage did not answer with a list of blobs") from None
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
        """`secret`: grants access; never part of a message."""
        try:
            response = await self._client.request(method, url, headers=headers, params=params or None, content=content)
        except httpx.HTTPError as error:
            raise PlatformUnavailable(
                f"the workspace's storage is unreachable ({type(error).__name__})", refused=True
            ) from None
        if response.is_success or response.status_code in quiet:
            return response
        words = (
            SecretTexts(secret).shown(response.text, _MOST_WORDS)
            if response.status_code != 403
            else "assign yourself the role Storage Blob Data Contributor"
        )
        raise PlatformUnavailable(f"the workspace's storage answered {response.status_code}: {words}", refused=True)
