"""A `python3` that says that it is another version when it is asked, and is this Python for all else."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests import bare_python

#: No Python 3 of this version will be found anywhere.
VERSION = "3.99"
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def put(folder: Path) -> str:
    """A PATH with that `python3` in front, in a new folder, and this Python behind it."""
    folder.mkdir()
    own = shlex.quote(sys.executable)
    asked = f'case "$*" in *nni-manager-python*) echo "nni-manager-python {VERSION}.1 $0"; exit;; esac'
    (folder / "python3").write_text(f'#!/bin/sh\n{asked}\nexec {own} "$@"\n')
    (folder / "python3").chmod(0o755)
    return f"{folder}:{own_first()}"


def own_first() -> str:
    """A PATH on which `python3` is this Python, whatever the PATH of the tests has first."""
    return f"{Path(bare_python.own()).parent}:{os.environ['PATH']}"
