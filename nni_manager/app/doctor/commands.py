"""Whose `nnictl` a shell finds: NNI's own package has a command of that name, too."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nni_manager.app.doctor.finding import CheckFinding, ok, warning

_NAME = "nnictl"
_INSTEAD = "write nni-manager in place of nnictl; it has every command"
#: What stands in the few lines that pip makes of a command, and whose it is then.
_OWNERS = {b"nni_manager": "this program", b"nni.tools": "NNI itself"}
_MOST = 65536


def look(environment: Mapping[str, str]) -> Iterator[CheckFinding]:
    found = shutil.which(_NAME, path=environment.get("PATH", os.defpath))
    ours = Path(sys.executable).with_name(_NAME)
    if found is None:
        yield warning(_NAME, "no nnictl is on the PATH", f"{_INSTEAD}, or put {ours.parent} on the PATH")
    elif (owner := _owner(found)) == "this program" and _is_same(found, ours):
        yield ok(_NAME, f"the first one on the PATH is this program's ({found})")
    elif owner == "this program":
        sentence = f"the first one on the PATH ({found}) belongs to another installation of this program"
        yield warning(_NAME, sentence, f"put {ours.parent} first on the PATH")
    else:
        yield warning(_NAME, f"the first one on the PATH ({found}) belongs to {owner or 'something else'}", _INSTEAD)


def _owner(path: str) -> str:
    """Empty when it is nobody's that is known."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST)
    except OSError:
        return ""
    return next((owner for mark, owner in _OWNERS.items() if mark in text), "")


def _is_same(found: str, ours: Path) -> bool:
    try:
        return ours.samefile(found)
    except OSError:
        return False
