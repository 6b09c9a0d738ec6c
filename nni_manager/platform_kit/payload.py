"""What every job gets, on every platform: variables for its folders and for our importable modules, the trial runner as
one file, and the checkpoint of the trial that it continues."""

from __future__ import annotations

import functools
import io
import json
import marshal
import os
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from nni_manager.domain.ids import checkpoint_directory_of
from trial_runner import protocol
from trial_runner.wire import foreign_files, removal
from trial_runner.wire.runner_archive import MODULES_FILE, STAND_IN_FILE

_PACKAGE = Path(protocol.__file__).parent
STAND_IN = str(_PACKAGE / "stand_in")
#: The program that a user's Python runs to host their tuners and assessors.
TUNER_HOST = str(_PACKAGE / "tuner_host/__main__.py")


def directory_environment(attempt: str, code: str) -> dict[str, str]:
    """The variables with a trial's folders; `attempt` and `code`: as the job sees them."""
    return {
        protocol.ENV_SYSTEM_DIR: attempt,
        protocol.ENV_OUTPUT_DIR: attempt,
        protocol.ENV_CODE_DIR: code,
        protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(attempt),
        protocol.ENV_OUTBOX: f"{attempt}/{protocol.MAIN_OUTBOX}",
    }


def checkpoint_beside(attempt: str) -> str:
    """The folder of a trial's checkpoints; `attempt`: the folder of one of its attempts."""
    parent, _, name = attempt.rpartition("/")
    return f"{parent}/{checkpoint_directory_of(name)}"


def with_stand_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the stand-in `nni` and the SDK's channel on the path, after the user's own entries."""
    path = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{path}:{STAND_IN}" if path else STAND_IN}


# Shell text before the command hands on checkpoints of ended trials. The job copies them itself: only the job surely
# has both folders, and permission to read and write them. A mark identifies an incomplete copy, which the next attempt
# restarts. Only the reporting process copies.

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
    """Shell text that fills a trial's empty checkpoint folder from another trial's, and reports a failure."""
    words = f"{protocol.ENV_CHECKPOINT_DIR}: no checkpoint of trial {trial_id} is here; this trial begins without"
    return _COPY.format(
        sys=protocol.ENV_SYSTEM_DIR,
        own=protocol.ENV_CHECKPOINT_DIR,
        replicas=protocol.REPLICAS_FOLDER,
        mark=protocol.CHECKPOINT_COPYING,
        earlier=checkpoint_directory_of(trial_id),
        words=shlex.quote(words),
    )


def write_private(path: Path, data: bytes) -> None:
    """Writes a file atomically, for this user only; creates a missing folder. Blocks. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    foreign_files.write_whole(os.path.realpath(path.parent), path.name, data)


def remove_folders(folders: Iterable[str]) -> dict[str, str]:
    """Removes folders of this machine that trials have written; returns the reasons of failures. Blocks."""
    stays = {folder: "; ".join(removal.remove(folder)) for folder in folders}
    return {folder: why for folder, why in stays.items() if why}


_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN_FILE = "__main__.py"
_MAIN = """\
import sys

from trial_runner import python_version

python_version.check()

{}from trial_runner.__main__ import main

sys.exit(main())
"""
_USE_MODULES = """\
from trial_runner.wire import runner_archive

runner_archive.use_modules()

"""
#: The earliest time of the format. The same sources result in the same bytes, at any time and place.
_DATE = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
#: The marshal version with reproducible bytes: later ones depend on other references to a constant.
_PLAIN_MARSHAL = 2
#: Compression level: higher ones save little and take several times as long.
_FAST = 1
#: Modules that no container needs.
_OF_MACHINES = ("keeper", "tuner_host", "command_probe.py", "gpu_probe.py", "shared_storage.py")
#: Modules that a trial imports, in a separate file.
_OF_TRIALS = "stand_in"


@functools.cache
def machine_archive() -> bytes:
    """All programs for a machine as one uncompressed file, which is unpacked there.

    Compressed bytes differ between versions of zlib, and some Pythons lack zlib.
    """
    return _packed({_MAIN_FILE: _MAIN.format("").encode(), **_sources()})


@functools.cache
def runner_archive() -> bytes:
    """The trial runner as one file, which any Python 3.7 or newer runs.

    Also contains the modules compiled by this version of Python: `trial_runner.wire.runner_archive`.
    """
    needed = {name: data for name, data in _sources().items() if name.split("/")[1] not in (*_OF_MACHINES, _OF_TRIALS)}
    return _packed(
        {
            _MAIN_FILE: _MAIN.format(_USE_MODULES).encode(),
            **needed,
            STAND_IN_FILE: json.dumps(_stand_in()).encode(),
            MODULES_FILE: zlib.compress(_marshalled({name: _code(name) for name in needed}), _FAST),
        }
    )


def _sources() -> dict[str, bytes]:
    """Name in the archive → content."""
    found = sorted(_PACKAGE.rglob("*.py"))
    return {f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}": path.read_bytes() for path in found}


def _stand_in() -> dict[str, str]:
    """Name in its folder → text."""
    found = sorted(Path(STAND_IN).rglob("*.py"))
    return {path.relative_to(STAND_IN).as_posix(): path.read_text(encoding="utf-8") for path in found}


def _code(name: str) -> CodeType:
    path = _PACKAGE.parent / name
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    assert isinstance(code, CodeType)
    return _named(code, name)


def _named(code: CodeType, name: str) -> CodeType:
    """File name in tracebacks: as a file of the archive, not of this machine."""
    inner = (_named(one, name) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(inner))


def _marshalled(code: Mapping[str, CodeType]) -> bytes:
    try:
        return marshal.dumps(dict(code), _PLAIN_MARSHAL)
    except ValueError:  # the slices that Python 3.14 makes constants
        return marshal.dumps(dict(code))


def _packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = _REGULAR_FILE
            archive.writestr(entry, data)
    return buffer.getvalue()
