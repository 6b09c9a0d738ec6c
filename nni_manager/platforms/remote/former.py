"""Machines that an experiment had when it was entered last: one that was taken out of the list keeps its jobs until
they end, under whatever daemon.

Kept in the service's folder, without secrets: who logged in with a password is asked for by key from then on.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nni_manager.platforms.remote.site import Entry

log = logging.getLogger(__name__)

_FILE = "machines.json"
_SECRETS = frozenset({"password", "sshPassphrase"})

#: Of `machineList`, canonical.
Section = Mapping[str, Any]


def load(folder: Path) -> dict[str, Section]:
    """By the keys of their connections; none when the file is not there, or nobody can read it."""
    try:
        sections = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return by_key(sections)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("which machines there were is not known any more: %s: %s", folder / _FILE, error)
        return {}


def save(folder: Path, sections: Iterable[Section]) -> None:
    """Raises OSError."""
    shown = [{name: value for name, value in one.items() if name not in _SECRETS} for one in sections]
    text, path = json.dumps(shown), folder / _FILE
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def by_key(sections: Iterable[Section]) -> dict[str, Section]:
    return {Entry.of(section).address.key: section for section in sections}
