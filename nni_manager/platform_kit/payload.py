"""What a job is given, the same for every platform: variables that name its folders and what of ours it may import, the
trial runner as one file, and the checkpoint of the trial that it continues."""

from __future__ import annotations

import functools
import io
import shlex
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from nni_manager.domain.ids import checkpoint_directory_of
from trial_runner import protocol
from trial_runner.wire import removal

_PACKAGE = Path(protocol.__file__).parent
STAND_IN = str(_PACKAGE / "stand_in")
#: The program that a user's Python runs to host their tuners and assessors.
TUNER_HOST = str(_PACKAGE / "tuner_host/__main__.py")


def directory_environment(attempt: str, code: str) -> dict[str, str]:
    """The variables that name a trial's folders; `attempt` and `code` as the job itself sees them."""
    return {
        protocol.ENV_SYSTEM_DIR: attempt,
        protocol.ENV_OUTPUT_DIR: attempt,
        protocol.ENV_CODE_DIR: code,
        protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(attempt),
        protocol.ENV_OUTBOX: f"{attempt}/{protocol.MAIN_OUTBOX}",
    }


def checkpoint_beside(attempt: str) -> str:
    """The folder of a trial's checkpoints; `attempt`: that of one of its attempts."""
    parent, _, name = attempt.rpartition("/")
    return f"{parent}/{checkpoint_directory_of(name)}"


def with_stand_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the stand-in `nni` and the SDK's channel on the path, behind all that the user put there."""
    path = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{path}:{STAND_IN}" if path else STAND_IN}


# Checkpoints of trials that have ended are handed on, by shell text before the command, or removed. The job copies
# one itself: it alone surely has both folders, and the right to read and write them. A mark tells a copy that was cut
# short; the next attempt begins it anew. Processes that do not report leave it to the one that does.

_COPY = """\
case "${sys}" in */{replicas}/*) ;; *)
if [ -e "${own}/{mark}" ] || [ -z "$(ls -A "${own}")" ]; then
    {{ : > "${own}/{mark}" && cp -R "${{{own}%/*}}/{earlier}/." "${own}/" && rm -f "${own}/{mark}"; }} || {{
        rm -rf "${own}"/* "${own}"/.[!.]*
        echo {words} >&2
    }}
fi ;; esac
"""


def copy_from(trial_id: str) -> str:
    """Shell text that fills a trial's empty checkpoint folder from another trial's, and says so where it cannot."""
    words = f"{protocol.ENV_CHECKPOINT_DIR}: the checkpoint of trial {trial_id} is not here; this trial begins without"
    return _COPY.format(
        sys=protocol.ENV_SYSTEM_DIR,
        own=protocol.ENV_CHECKPOINT_DIR,
        replicas=protocol.REPLICAS_FOLDER,
        mark=protocol.CHECKPOINT_COPYING,
        earlier=checkpoint_directory_of(trial_id),
        words=shlex.quote(words),
    )


def remove_folders(folders: Iterable[str]) -> dict[str, str]:
    """Removes folders of this machine, which trials have written; answers why, of those that stay. Blocks."""
    stays = {folder: "; ".join(removal.remove(folder)) for folder in folders}
    return {folder: why for folder, why in stays.items() if why}


_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import sys

from trial_runner import python_version

python_version.check()

from trial_runner.__main__ import main

sys.exit(main())
"""
#: The earliest that the format knows. The same sources make the same bytes, whenever and wherever.
_DATE = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16


@functools.cache
def runner_archive() -> bytes:
    """The trial runner as one file, which any Python 3.7 or newer runs; uncompressed.

    Compressed bytes differ between versions of zlib, which not every Python has.
    """
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(_PACKAGE.rglob("*.py")):
            _add(archive, f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}", path.read_bytes())
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.create_system = 3  # Unix, wherever it is made
    entry.external_attr = _REGULAR_FILE
    archive.writestr(entry, data)
