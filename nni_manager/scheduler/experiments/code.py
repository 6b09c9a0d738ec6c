"""The code of one experiment: a copy of uploaded code, and the archive for remote jobs.

Local trials share the copy and may write into it, like into the folder of a local caller. The upload itself is not
changed, and can be used by the next experiment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nni_manager.config import admission, experiment_file
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.platform_kit.tasks import ended
from nni_manager.platform_kit.threads import to_its_end
from nni_manager.store.folder import Folder

T = TypeVar("T")
#: Polled while code is copied or packed; False stops it.
IsWanted = Callable[[], bool]


class CodeArchive:
    """The archive of the code that trials run. `folder`: the experiment's ``code``."""

    def __init__(self, code_directory: Path, folder: Path) -> None:
        self._code_directory = code_directory
        self._folder = folder
        self._packing: asyncio.Task[None] | None = None
        self._path: Path | None = None

    def pack(self, is_wanted: IsWanted) -> None:
        """Packs the code. Blocks. Raises InvalidInput, OSError, or NotWanted when `is_wanted` says no."""
        self._path = find_or_pack(self._code_directory, self._folder, is_wanted)

    async def path(self) -> Path:
        """Packs on first use; uses an existing archive of an earlier daemon. Raises InvalidInput or OSError.

        A submission has a time limit, packing has none: it continues for the next submission.
        """
        while self._path is None or not self._path.exists():
            if self._packing is None or self._packing.done():
                self._packing = asyncio.create_task(in_thread(self.pack), name=f"pack {self._code_directory}")
            await asyncio.shield(self._packing)
        return self._path

    async def close(self) -> None:
        """Stops packing; afterwards nothing is written to the folder."""
        await ended(self._packing)


def archive_of(spec: ExperimentSpec, service: PlatformSpec, folder: Path) -> CodeArchive:
    """`folder`: the experiment's ``code``. A service with a code directory of its own has a folder of its own there."""
    own = admission.code_directory(spec, service)
    return CodeArchive(own, folder if own == Path(spec.trial_code_directory) else folder / service.service)


async def in_thread(work: Callable[[IsWanted], T]) -> T:
    """Runs blocking work in a thread. On cancellation, the work is stopped and awaited, as a folder cannot be removed
    while it is being written."""
    is_over = threading.Event()
    return await to_its_end(lambda: work(lambda: not is_over.is_set()), stop=is_over.set)


def find_or_pack(code_directory: Path, folder: Path, is_wanted: IsWanted) -> Path:
    """The archive of the code, packed once, as all trials of an experiment run the same. Blocks."""
    from nni_manager.code_archive import pack  # 40 ms to import, and local trials need none

    packed = sorted(folder.glob("*.tar.gz"))
    if packed:
        return packed[0]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return pack(code_directory, folder, is_wanted).path


def with_own_code(spec: ExperimentSpec, sent: Path | None, folder: Folder, is_wanted: IsWanted) -> ExperimentSpec:
    """Copies uploaded code; returns the spec that runs the copy. Without an upload, the same spec. Blocks. Raises
    OSError, or NotWanted once `is_wanted` is False."""
    if sent is None:
        return spec
    folder.code.mkdir(mode=0o700)
    _copy(sent, folder.own_code, is_wanted)
    return experiment_file.from_canonical(experiment_file.move_code(spec.canonical, str(sent), str(folder.own_code)))


def _copy(source: Path, target: Path, is_wanted: IsWanted) -> None:
    """Copies a tree with links and file modes; stops at the first error."""
    from nni_manager.code_archive import NotWanted

    folders = [(os.fspath(source), os.fspath(target))]
    for here, there in folders:
        os.mkdir(there, stat.S_IMODE(os.lstat(here).st_mode) | stat.S_IRWXU)
        with os.scandir(here) as entries:
            for entry in entries:
                if not is_wanted():
                    raise NotWanted(entry.path)
                place = os.path.join(there, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, place))
                else:
                    shutil.copy(entry.path, place, follow_symlinks=False)
