"""Assets of the workspace that all trials share: the code, by its content, and an environment for the image. Each put
once.

Two experiments may put the same code at once. Each uploads it to an address of its own, and the service keeps the first
one's: an asset's path cannot be changed. As its version is the hash of what it holds, the first one's is as good.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.runner_archive import runner_archive
from nni_manager.platforms.aml import job
from nni_manager.platforms.aml.account import AmlAccount
from nni_manager.platforms.aml.blobs import Blobs
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.web_services.account import Refused

_NAME = "nni-trial-code"


class Assets:
    """The assets of one experiment. `code`: `Host.code`."""

    def __init__(self, config: AmlConfig, code: Callable[[], Awaitable[Path]]) -> None:
        self._config = config
        self._code = code
        self._putting = asyncio.Lock()
        #: Archive → the asset's id.
        self._known: dict[Path, str] = {}

    async def put(self, account: AmlAccount, blobs: Blobs) -> str:
        """The code asset's id, after the environment exists, too. Raises SubmitRejected, PlatformUnavailable."""
        try:
            archive = await self._code()
        except InvalidInput as error:
            raise SubmitRejected(str(error)) from error
        async with self._putting:
            if archive not in self._known:
                await self._put_environment(account)
                self._known[archive] = await self._put_code(account, blobs, archive)
            return self._known[archive]

    async def _put_environment(self, account: AmlAccount) -> None:
        path = f"environments/{job.environment_name(self._config)}/versions/1"
        if await account.get(path) is None:
            await _put_or_find(account, path, {"image": self._config.docker_image, "osType": "Linux"})

    async def _put_code(self, account: AmlAccount, blobs: Blobs, archive: Path) -> str:
        code = await asyncio.to_thread(archive.read_bytes)
        files = {job.START_FILE: job.START.encode(), job.RUNNER_FILE: runner_archive(), job.CODE_FILE: code}
        version = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in files.values())).hexdigest()[:32]
        path = f"codes/{_NAME}/versions/{version}"
        if await account.get(path) is None:
            slot = (await account.post(f"{path}/startPendingUpload", _SLOT)).json()
            blob_uri, signed_uri = _places(slot)
            for name, data in files.items():
                await blobs.upload(_below(signed_uri, f"{version}/{name}"), data)
            await _put_or_find(account, path, {"codeUri": f"{blob_uri.rstrip('/')}/{version}"})
        return f"{account.resource}/{path}"


async def _put_or_find(account: AmlAccount, path: str, properties: Json) -> None:
    """Creates an asset, or keeps one that was created meanwhile. Raises Refused where neither exists."""
    try:
        await account.put(path, {"properties": properties})
    except Refused:
        if await account.get(path) is None:
            raise


_SLOT = {"pendingUploadType": "TemporaryBlobReference"}


def _places(slot: Any) -> tuple[str, str]:
    """The address of the code, and the same address with the right to write there."""
    try:
        reference = slot["blobReferenceForConsumption"]
        return str(reference["blobUri"]), str(reference["credential"]["sasUri"])
    except (KeyError, TypeError):
        raise PlatformUnavailable("Azure ML gives no place for the code; it is asked again", refused=True) from None


def _below(signed_uri: str, name: str) -> str:
    place, _, signature = signed_uri.partition("?")
    return f"{place.rstrip('/')}/{name}?{signature}"
