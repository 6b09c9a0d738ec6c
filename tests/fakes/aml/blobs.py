"""Blob storage: containers are folders, blobs are files. A put replaces the whole blob."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.fakes.aml.answers import Answer, blob_error

_PAGE = 5000


class Blobs:
    """Blobs of one container, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        #: Number of blobs per page of a list.
        self.page = _PAGE
        #: Simulated delays: `is_late(path)`, `shown_size(size)`; None: no delays.
        self.storage: Any = None

    def handle(
        self, method: str, name: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """Answer a request. `name`: the blob; empty: the container. `headers`: names in lower case."""
        if ".." in Path(name).parts:
            return blob_error(400, "InvalidUri", "The requested URI does not represent any resource on the server.")
        if not name:
            return self._list(query)
        if method == "PUT":
            return self._put(name, headers, body)
        path = self.folder / name
        if not path.is_file():
            return blob_error(404, "BlobNotFound", "The specified blob does not exist.")
        if method == "DELETE":
            path.unlink()
            return Answer(status=202)
        return _read(path, headers.get("x-ms-range") or headers.get("range", ""))

    def _put(self, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if headers.get("x-ms-blob-type") != "BlockBlob":
            return blob_error(400, "MissingRequiredHeader", "x-ms-blob-type is required.")
        replace(self.folder / name, body)
        return Answer(status=201)

    def _list(self, query: Mapping[str, str]) -> Answer:
        if (query.get("restype"), query.get("comp")) != ("container", "list"):
            return blob_error(400, "InvalidQueryParameterValue", "A container is listed with restype and comp.")
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        most = min(self.page, int(query.get("maxresults") or self.page))
        found = {str(path.relative_to(self.folder)): path for path in walked(self.folder) if path.is_file()}
        names = sorted(name for name in found if name.startswith(prefix) and name >= marker)
        rows = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{self._size(found[name])}"
            "</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in names[:most]
        )
        following = names[most] if len(names) > most else ""
        text = (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
            f"{rows}</Blobs><NextMarker>{escape(following)}</NextMarker></EnumerationResults>"
        )
        return Answer(data=text.encode(), headers={"Content-Type": "application/xml"})

    def _size(self, path: Path) -> int:
        size = path.stat().st_size
        is_late = self.storage is not None and self.storage.is_late(str(path))
        return int(self.storage.shown_size(size)) if is_late else size


def walked(folder: Path) -> Iterator[Path]:
    """All files at any depth; folders may be removed at the same time."""
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in names)


def replace(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parents[0] / f".{uuid.uuid4().hex}.new"
    fresh.write_bytes(data)
    os.replace(fresh, path)


def _read(path: Path, span: str) -> Answer:
    data = path.read_bytes()
    if not span:
        return Answer(data=data)
    start, _, end = span.removeprefix("bytes=").partition("-")
    if int(start) >= len(data):
        return blob_error(416, "InvalidRange", "The range specified is invalid for the current size of the resource.")
    return Answer(status=206, data=data[int(start) : int(end) + 1 if end else None])
