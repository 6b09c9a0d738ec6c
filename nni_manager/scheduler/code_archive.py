"""The packed code of one experiment, made once and kept in its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec


class CodeArchive:
    """`folder`: the experiment's ``code``."""

    def __init__(self, code_directory: Path, folder: Path) -> None:
        self._code_directory = code_directory
        self._folder = folder
        self._packing = asyncio.Lock()
        self._path: Path | None = None

    def pack(self) -> None:
        """Blocks. Raises InvalidInput or OSError."""
        self._path = find_or_pack(self._code_directory, self._folder)

    async def path(self) -> Path:
        """Packs on first use; an archive an earlier daemon made is used as it is. Raises InvalidInput or OSError."""
        async with self._packing:
            if self._path is None or not self._path.exists():
                await asyncio.to_thread(self.pack)
            assert self._path is not None, "set by `pack`"
            return self._path


def archive_of(spec: ExperimentSpec, service: PlatformSpec, folder: Path) -> CodeArchive:
    """`folder`: the experiment's ``code``. A service with a code directory of its own has a folder of its own there."""
    common = spec.trial_code_directory
    own = str(service.settings.get("trialCodeDirectory", common))
    return CodeArchive(Path(own), folder if own == common else folder / service.service)


def find_or_pack(code_directory: Path, folder: Path) -> Path:
    """Blocks. All trials of an experiment run the same code: what was packed first stays."""
    from nni_manager.platform_kit.archive import pack  # 40 ms to import, and local trials need none

    packed = sorted(folder.glob("*.tar.gz"))
    if packed:
        return packed[0]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return pack(code_directory, folder).path
