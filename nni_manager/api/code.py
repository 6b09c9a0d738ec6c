"""Code directories from clients on other machines: packed, sent once, unpacked below the data directory."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import aiofiles
from fastapi import APIRouter, Depends, Request, Response
from fastapi import Path as PathParameter

from nni_manager.api.code_folders import CodeFolders
from nni_manager.api.context import Context
from nni_manager.api.errors import documented
from nni_manager.api.schemas.code import Code
from nni_manager.api.schemas.errors import Error
from nni_manager.domain.errors import InvalidInput, NotFound, StoreUnavailable

PREFIX = "/api/v1/code"
#: 300 MB of files, and what packing adds where nothing can be compressed.
BODY_LIMIT = 308 * 1024 * 1024

router = APIRouter(prefix=PREFIX, tags=["experiments"])

_SHA256 = re.compile("[0-9a-f]{64}")
_BODY: dict[str, Any] = {
    "required": True,
    "description": "The code directory as a gzipped tar file: files, folders before what is in them, and symbolic links"
    " that stay inside; at most 2000 files and 300 MB.",
    "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
}
_TOO_LARGE: dict[int | str, dict[str, Any]] = {413: {"model": Error, "description": "The body is larger than 308 MB."}}


async def _sha256(
    sha256: Annotated[
        str, PathParameter(description="SHA-256 of the packed code, 64 digits in hex.", examples=["0f" * 32])
    ],
) -> str:
    """Raises NotFound for what cannot be one."""
    if not is_sha256(sha256):
        raise NotFound(f"{sha256!r} is no SHA-256: that is 64 digits, 0 to 9 and a to f")
    return sha256


Sha256 = Annotated[str, Depends(_sha256)]


@router.get(
    "/{sha256}", operation_id="findCode", summary="Whether code was sent before", responses=documented(404, 503)
)
async def find(sha256: Sha256, context: Context) -> Code:
    """Code is kept for ten minutes after it was asked for. An experiment that is made of it gets a copy of its own."""
    return Code(sha256=sha256, directory=str(await directory(context.data_directory, sha256)))


@router.put(
    "/{sha256}", operation_id="sendCode", summary="Send a code directory", status_code=201,
    responses={200: {"model": Code, "description": "It was there already."}, **_TOO_LARGE, **documented(400, 404, 503)},
    openapi_extra={"requestBody": _BODY},
)  # fmt: skip
async def send(sha256: Sha256, request: Request, response: Response, context: Context) -> Code:
    """Answers when it is unpacked. Nothing is left behind of what is refused or breaks off."""
    folders = CodeFolders(context.data_directory)
    known = await asyncio.to_thread(folders.find, sha256)
    if known is not None:
        response.status_code = 200
        return Code(sha256=sha256, directory=str(known))
    draft = await asyncio.to_thread(folders.draft)
    try:
        _check(await _write(request.stream(), draft / "archive"), sha256)
        made = await asyncio.to_thread(folders.keep, sha256, draft)
    finally:
        await asyncio.to_thread(folders.discard, draft)
    return Code(sha256=sha256, directory=str(made))


def is_sha256(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


async def directory(data_directory: Path, sha256: str) -> Path:
    """Where code that was sent lies. Raises NotFound."""
    found = await asyncio.to_thread(CodeFolders(data_directory).find, sha256)
    if found is None:
        raise NotFound(f"no code {sha256} was sent; send it with PUT {PREFIX}/{sha256}")
    return found


def holding(data_directory: Path, path: Path) -> Path | None:
    """The folder of code that was sent which `path` is or lies in; None: it has nothing to do with what was sent."""
    return CodeFolders(data_directory).holding(path)


async def release(data_directory: Path, experiment_id: str) -> None:
    """An experiment is gone, and with it the code that an earlier version kept for it alone."""
    await asyncio.to_thread(CodeFolders(data_directory).release, experiment_id)


async def _write(parts: AsyncIterator[bytes], path: Path) -> str:
    """Answers the SHA-256 of what came."""
    digest = hashlib.sha256()
    try:
        async with aiofiles.open(path, "wb") as file:
            async for part in parts:
                digest.update(part)
                await file.write(part)
    except OSError as error:
        raise StoreUnavailable(f"the code cannot be stored ({error.strerror}); make room, try again") from error
    return digest.hexdigest()


def _check(found: str, expected: str) -> None:
    if found != expected:
        raise InvalidInput(f"what was sent has the SHA-256 {found} and not the one of its address; send it again")
