"""Code that clients elsewhere sent, unpacked below the data directory as it came: ``code/sent-<sha256>/tree``.

Nothing runs in it: every experiment that is made of it has a copy of its own. What nobody has asked for lately goes
when something else comes or an experiment is deleted; so does what an upload that broke off has left.

Experiments of earlier versions run in ``code/<sha256>/tree`` itself, which stays for as long as one of them has an
empty file ``experiments/<id>`` beside it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nni_manager.domain.errors import StoreUnavailable
from trial_runner.wire import removal

log = logging.getLogger(__name__)

#: Seconds for which code is kept after somebody has asked for it.
_UNUSED_S = 600.0
#: Seconds after which what comes in has certainly broken off.
_UNFINISHED_S = 86_400.0
_SENT = "sent-"
_DRAFT = ".incoming-"
#: What is being removed.
_DOOMED = ".removed-"


class CodeFolders:
    """All methods block. Raises StoreUnavailable when the disk does not take it."""

    def __init__(self, data_directory: Path) -> None:
        self.root = Path(os.path.realpath(data_directory)) / "code"

    def find(self, sha256: str) -> Path | None:
        """The unpacked folder; from now on it is kept long enough to make an experiment of it."""
        folder = self._place(sha256)
        if not (folder / "tree").is_dir():
            return None
        with _classified(self.root):
            os.utime(folder)
        return folder / "tree"

    def holding(self, path: Path) -> Path | None:
        """The unpacked folder that `path` is or lies in; None: it has nothing to do with what was sent."""
        folders = (path, *path.parents)
        return next((one for one in folders if one.name == "tree" and one.parent.parent == self.root), None)

    def draft(self) -> Path:
        """An empty folder for what comes in; for the caller to `discard`."""
        with _classified(self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            self.sweep()
            return Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self.root))

    def discard(self, draft: Path) -> None:
        """Removes a draft, whatever is in it."""
        _remove(draft)

    def keep(self, sha256: str, draft: Path) -> Path:
        """Unpacks the file ``archive`` of a draft and puts it where it belongs, at once and whole.

        Raises InvalidInput for what is no archive of code.
        """
        from nni_manager.platform_kit.archive import unpack  # 40 ms to import, and most daemons need none

        made = draft / "made"
        with _classified(self.root):
            for folder in (made, made / "tree"):
                folder.mkdir(mode=0o700)
            unpack(draft / "archive", made / "tree")
            self._settle(made, self._place(sha256))
        return self._place(sha256) / "tree"

    def release(self, experiment_id: str) -> None:
        """An experiment is gone, and with it the code that an earlier version kept for it alone."""
        with contextlib.suppress(OSError):  # what goes with it goes another time
            for note in self.root.glob(f"*/experiments/{experiment_id}"):
                note.unlink(missing_ok=True)
        self.sweep()

    def sweep(self) -> None:
        """Removes what nobody has asked for lately, unless experiments of an earlier version run it. Never raises."""
        now_s = time.time()
        for folder in self.root.glob("*"):
            with contextlib.suppress(OSError):  # another time
                if folder.name.startswith(_DOOMED):  # a daemon was killed meanwhile
                    _remove(folder)
                elif now_s - folder.stat().st_mtime > _age_limit_s(folder) and not any(folder.glob("experiments/*")):
                    self._remove(folder)

    def _place(self, sha256: str) -> Path:
        return self.root / f"{_SENT}{sha256}"

    def _remove(self, folder: Path) -> None:
        """Under another name: whoever looks for it finds all of it or nothing, also when this is never finished."""
        doomed = self.root / f"{_DOOMED}{time.time_ns()}"
        folder.rename(doomed)
        _remove(doomed)

    def _settle(self, made: Path, folder: Path) -> None:
        try:
            made.rename(folder)
        except OSError:
            if not (folder / "tree").is_dir():  # else somebody else has sent the same meanwhile
                raise


def _remove(folder: Path) -> None:
    """What cannot be removed is tried again with the next sweep, and costs nobody anything meanwhile."""
    for finding in removal.remove(str(folder)):
        log.warning("of code that was sent: %s", finding)


def _age_limit_s(folder: Path) -> float:
    return _UNFINISHED_S if folder.name.startswith(_DRAFT) else _UNUSED_S


@contextmanager
def _classified(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"the code cannot be stored in {root} ({error.strerror}); make room, try again"
        ) from error
