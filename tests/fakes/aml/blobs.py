"""Blob storage: a container is a folder, which jobs' outputs are mounted from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.fakes.aml.answers import Answer

_PAGE = 5000


class Blobs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.page = _PAGE
        #: What is late: `is_late(path)`, `shown_size(size)`; None: nothing.
        self.storage: Any = None

    def handle(
        self, method: str, name: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """`name`: of the blob; empty: the container itself."""
        if not name:
            return self._list(query.get("prefix", ""), query.get("marker", ""))
        path = self.folder / name
        if ".." in Path(name).parts:
            return Answer(status=400)
        if method == "PUT":
            if headers.get("x-ms-blob-type") != "BlockBlob":
                return Answer(status=400, data=b"x-ms-blob-type is required")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            return Answer(status=201)
        if not path.is_file():
            return Answer(status=404, data=b"<Error><Code>BlobNotFound</Code></Error>")
        if method == "DELETE":
            path.unlink()
            return Answer(status=202)
        return _read(path, headers.get("range", ""))

    def _list(self, prefix: str, marker: str) -> Answer:
        found = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        names = sorted(name for name in found if name.startswith(prefix) and name >= marker)
        rows = [
            f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{self._size(found[name])}"
            "</Content-Length></Properties></Blob>"
            for name in names[: self.page]
        ]
        following = names[self.page] if len(names) > self.page else ""
        text = (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
            f"{''.join(rows)}</Blobs><NextMarker>{escape(following)}</NextMarker></EnumerationResults>"
        )
        return Answer(data=text.encode(), headers={"Content-Type": "application/xml"})

    def _size(self, path: Path) -> int:
        size = path.stat().st_size
        is_late = self.storage is not None and self.storage.is_late(str(path))
        return int(self.storage.shown_size(size)) if is_late else size


def _read(path: Path, span: str) -> Answer:
    data = path.read_bytes()
    if not span:
        return Answer(data=data)
    start = int(span.removeprefix("bytes=").partition("-")[0])
    return Answer(status=206, data=data[start:]) if start < len(data) else Answer(status=416)
