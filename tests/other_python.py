"""A `python3` that reports another version, but otherwise is this Python."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests import bare_python

#: A Python version that does not exist.
VERSION = "3.99"
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def put(folder: Path) -> str:
    """A PATH that starts with that `python3`, in a new folder, followed by this Python."""
    folder.mkdir()
    own = shlex.quote(sys.executable)
    asked = f'case "$*" in *nni-manager-python*) echo "nni-manager-python {VERSION}.1 $0"; exit;; esac'
    (folder / "python3").write_text(f'#!/bin/sh\n{asked}\nexec {own} "$@"\n')
    (folder / "python3").chmod(0o755)
    return f"{folder}:{own_first()}"


def own_first() -> str:
    """A PATH on which `python3` is this Python, independent of the tests' own PATH."""
    return f"{Path(bare_python.own()).parent}:{os.environ['PATH']}"
