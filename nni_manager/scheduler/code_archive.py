"""The packed code of one experiment, made once and kept in its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path


class CodeArchive:
    """`folder`: the experiment's ``code``."""

    def __init__(self, code_directory: Path, folder: Path) -> None:
        self._code_directory = code_directory
        self._folder = folder
        self._packing = asyncio.Lock()
        self._path: Path | None = None

    async def path(self) -> Path:
        """Packs on first use; an archive an earlier daemon made is used as it is. Raises InvalidInput or OSError."""
        async with self._packing:
            if self._path is None or not self._path.exists():
                self._path = await asyncio.to_thread(find_or_pack, self._code_directory, self._folder)
            return self._path


def find_or_pack(code_directory: Path, folder: Path) -> Path:
    """Blocks. All trials of an experiment run the same code: what was packed first stays."""
    from nni_manager.platform_kit.archive import pack  # 40 ms to import, and local trials need none

    packed = sorted(folder.glob("*.tar.gz"))
    if packed:
        return packed[0]
    folder.mkdir(mode=0o700, exist_ok=True)
    return pack(code_directory, folder).path
