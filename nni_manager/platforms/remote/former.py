"""Machines that an experiment has or had: one that was taken out of the list keeps its jobs until they end, under
whatever daemon, and what these wrote until the experiment is deleted.

Kept in the service's folder, for its owner's eyes: the config, and the secrets that it refers to, know nothing any more
of a machine that was taken out, which is to be logged in to.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nni_manager.platforms.remote.address import Entry

log = logging.getLogger(__name__)

_FILE = "machines.json"

#: An entry of `machineList`, canonical.
Section = Mapping[str, Any]


def load(folder: Path) -> dict[str, Section]:
    """The machines by the keys of their connections; none when the file is not there, or nobody can read it."""
    try:
        sections = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return by_key(sections)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("which machines there were is not known any more: %s: %s", folder / _FILE, error)
        return {}


def save(folder: Path, sections: Iterable[Section]) -> None:
    """Writes down the machines. Raises OSError."""
    text, path = json.dumps(list(sections)), folder / _FILE
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with open(draft, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    os.replace(draft, path)


def by_key(sections: Iterable[Section]) -> dict[str, Section]:
    return {Entry.of(section).address.key: section for section in sections}
