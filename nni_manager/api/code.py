"""Uploads of code directories from clients on other machines.

Code is unpacked to ``code/sent-<sha256>/tree`` below the data directory. An experiment runs in its own copy. Code
without a request for `_UNUSED_S`, and rests of interrupted uploads, are removed when other code arrives or an
experiment is deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import aiofiles
from fastapi import APIRouter, Depends, Request, Response
from fastapi import Path as PathParameter

from nni_manager.api.context import Context
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.daemon import Code, Error
from nni_manager.domain.errors import InvalidInput, NotFound, StoreUnavailable
from trial_runner.wire import full_disks, removal

log = logging.getLogger(__name__)

#: Seconds for which code is kept after the last request for it.
_UNUSED_S = 600.0
#: Seconds after which an unfinished upload counts as interrupted.
_UNFINISHED_S = 86_400.0
_SENT = "sent-"
_DRAFT = ".incoming-"
#: Prefix of folders that are being removed.
_DOOMED = ".removed-"


class CodeFolders:
    """The folders of uploaded code. All methods block; they raise StoreUnavailable if the disk cannot store it."""

    def __init__(self, data_directory: Path) -> None:
        self.root = Path(os.path.realpath(data_directory)) / "code"

    def find(self, sha256: str) -> Path | None:
        """The unpacked folder, which is then kept for another `_UNUSED_S`; None for unknown code."""
        folder = self._place(sha256)
        if not (folder / "tree").is_dir():
            return None
        with _classified(self.root):
            os.utime(folder)
        return folder / "tree"

    def holding(self, path: Path) -> Path | None:
        """The unpacked folder that is or contains `path`, or None."""
        folders = (path, *path.parents)
        return next((one for one in folders if one.name == "tree" and one.parent.parent == self.root), None)

    def draft(self) -> Path:
        """An empty folder for an upload; the caller removes it, or passes it to `keep`."""
        with _classified(self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            self.sweep()
            return Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self.root))

    def keep(self, sha256: str, draft: Path) -> Path:
        """Unpack the file ``archive`` of a draft, move the result atomically to its place, and return that.

        Removes the draft. Raises InvalidInput for an invalid archive.
        """
        try:
            with _classified(self.root):
                self._unpack(draft, self._place(sha256))
        finally:
            _remove(draft)
        return self._place(sha256) / "tree"

    def sweep(self) -> None:
        """Remove code without a recent request. Never raises."""
        now_s = time.time()
        for folder in self.root.glob("*"):
            with suppress(OSError):  # a later sweep tries again
                if folder.name.startswith(_DOOMED):  # left by a daemon that was killed
                    _remove(folder)
                    continue
                longest_s = _UNFINISHED_S if folder.name.startswith(_DRAFT) else _UNUSED_S
                if now_s - folder.stat().st_mtime > longest_s:
                    self._remove(folder)

    def _place(self, sha256: str) -> Path:
        return self.root / f"{_SENT}{sha256}"

    def _remove(self, folder: Path) -> None:
        """Remove a folder. Renames it first, so that an interrupted removal leaves no incomplete folder."""
        doomed = self.root / f"{_DOOMED}{time.time_ns()}"
        folder.rename(doomed)
        _remove(doomed)

    def _unpack(self, draft: Path, place: Path) -> None:
        from nni_manager.code_archive import unpack  # takes 40 ms to import; most daemons do not need it

        made = draft / "made"
        for folder in (made, made / "tree"):
            folder.mkdir(mode=0o700)
        unpack(draft / "archive", made / "tree")
        self._settle(made, place)

    def _settle(self, made: Path, folder: Path) -> None:
        try:
            made.rename(folder)
        except OSError:
            if not (folder / "tree").is_dir():  # else another client has sent the same code in the meantime
                raise


def _remove(folder: Path) -> None:
    """Remove the folder; the next sweep retries the rest."""
    for finding in removal.remove(str(folder)):
        log.warning("uploaded code was not removed completely: %s", finding)


@contextmanager
def _classified(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"the code cannot be stored in {root} ({full_disks.reason(error, root)}); free disk space and try again"
        ) from error


PREFIX = "/api/v1/code"
#: 300 MB of files, and the overhead of packing incompressible ones.
BODY_LIMIT = 308 * 1024 * 1024

router = APIRouter(prefix=PREFIX, tags=["experiments"], dependencies=KNOWN_QUERY)

_SHA256 = re.compile("[0-9a-f]{64}")
_BODY: dict[str, Any] = {
    "required": True,
    "description": "The code directory as a gzipped tar file: files, folders before their content, and symbolic links"
    " inside the directory; at most 2000 files and 300 MB.",
    "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
}
_TOO_LARGE: dict[int | str, dict[str, Any]] = {413: {"model": Error, "description": "The body is larger than 308 MB."}}


async def _sha256(
    sha256: Annotated[
        str, PathParameter(description="SHA-256 of the packed code, 64 digits in hex.", examples=["0f" * 32])
    ],
) -> str:
    """The hash in the path. Raises NotFound for a malformed one."""
    if not is_sha256(sha256):
        raise NotFound(f"{sha256!r} is not a SHA-256; send 64 digits, 0 to 9 and a to f")
    return sha256


Sha256 = Annotated[str, Depends(_sha256)]


@router.get(
    "/{sha256}", operation_id="findCode", summary="Find code that was sent before", responses=documented(404, 503)
)
async def find(sha256: Sha256, context: Context) -> Code:
    """Code is kept for ten minutes after the last request. Each experiment gets its own copy."""
    return Code(sha256=sha256, directory=str(await directory(context.data_directory, sha256)))


@router.put(
    "/{sha256}",
    operation_id="sendCode",
    summary="Send a code directory",
    status_code=201,
    responses={
        200: {"model": Code, "description": "The code was already stored."},
        **_TOO_LARGE,
        **documented(400, 404, 503),
    },
    openapi_extra={"requestBody": _BODY},
)
async def send(sha256: Sha256, request: Request, response: Response, context: Context) -> Code:
    """Answers when the code is unpacked. Refused or interrupted uploads are removed."""
    folders = CodeFolders(context.data_directory)
    known = await asyncio.to_thread(folders.find, sha256)
    if known is not None:
        response.status_code = 200
        return Code(sha256=sha256, directory=str(known))
    draft = await asyncio.to_thread(folders.draft)
    try:
        found = await _write(request.stream(), draft / "archive")
        if found != sha256:
            raise InvalidInput(f"the code has the SHA-256 {found}, not the one in the address; send it again")
    except BaseException:
        await asyncio.to_thread(_remove, draft)
        raise
    # the thread continues when the request is cancelled; only it may remove the draft from which it moves the tree
    made = await asyncio.shield(asyncio.to_thread(folders.keep, sha256, draft))
    return Code(sha256=sha256, directory=str(made))


def is_sha256(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


async def directory(data_directory: Path, sha256: str) -> Path:
    """The folder of uploaded code. Raises NotFound."""
    found = await asyncio.to_thread(CodeFolders(data_directory).find, sha256)
    if found is None:
        raise NotFound(f"cannot find code {sha256}; send it with PUT {PREFIX}/{sha256}")
    return found


async def sweep(data_directory: Path) -> None:
    """`CodeFolders.sweep`, called after an experiment was deleted."""
    await asyncio.to_thread(CodeFolders(data_directory).sweep)


async def _write(parts: AsyncIterator[bytes], path: Path) -> str:
    """Write the parts to `path`; return their SHA-256."""
    digest = hashlib.sha256()
    try:
        async with aiofiles.open(path, "wb") as file:
            async for part in parts:
                digest.update(part)
                await file.write(part)
    except OSError as error:
        raise StoreUnavailable(
            f"the code cannot be stored ({full_disks.reason(error, path)}); free disk space and try again"
        ) from error
    return digest.hexdigest()
