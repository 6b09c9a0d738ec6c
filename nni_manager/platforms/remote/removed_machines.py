"""Machines that an experiment has or had: one that was taken out of the list keeps its jobs until they end, under
whatever daemon, and what these wrote until the experiment is deleted.

Kept in the service's folder: the config, and the secrets that it refers to, know nothing any more of a machine that was
taken out, which is to be logged in to. Passwords are kept apart, where all secrets of the experiment are.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import StoreError
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.secret_texts import PrivateText
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

_FILE = "machines.json"

#: Fields of an entry that are secret.
SECRETS = ("password", "sshPassphrase")

#: An entry of `machineList`, canonical.
Section = Mapping[str, Any]


def load(folder: Path, private: PrivateText) -> dict[str, Section]:
    """The machines by the keys of their connections; none when the file is missing or malformed.

    Raises OSError while the file or the secrets cannot be read, so that no machine is forgotten.
    """
    path = folder / _FILE
    try:
        sections = by_key(json.loads(path.read_text(encoding="utf-8")))
        secrets = json.loads(private.read() or "{}")
        return {key: {**section, **secrets.get(key, {})} for key, section in sections.items()}
    except FileNotFoundError:
        return {}
    except StoreError as error:
        raise OSError(str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        log.warning("which machines there were is not known any more: %s: %s", path, error)
        return {}


def save(folder: Path, sections: Mapping[str, Section], private: PrivateText) -> None:
    """Writes down the machines, given by key; first the secrets, which lay in the file itself once. Raises OSError."""
    secrets = {key: found for key, section in sections.items() if (found := _secrets(section))}
    try:
        private.write(json.dumps(secrets) if secrets else "")
    except StoreError as error:
        raise OSError(str(error)) from error
    others = [{name: value for name, value in one.items() if name not in SECRETS} for one in sections.values()]
    text, path = json.dumps(others), folder / _FILE
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    foreign_files.write_whole(os.path.realpath(folder), _FILE, text.encode())


def _secrets(section: Section) -> dict[str, str]:
    return {name: section[name] for name in SECRETS if section.get(name)}


def by_key(sections: Iterable[Section]) -> dict[str, Section]:
    return {Entry.of(section).address.key: section for section in sections}
