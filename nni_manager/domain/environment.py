"""The environment of child processes: variables of the daemon that stay with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: What the name of every variable that sets the daemon up begins with; the token's does, too.
SETTINGS_PREFIX = "NNI_MANAGER_"
DATA_VARIABLE = f"{SETTINGS_PREFIX}DATA"
PORT_VARIABLE = f"{SETTINGS_PREFIX}PORT"
DEFAULT_DATA_DIRECTORY = "~/nni-experiments"


def data_directory(given: str | None, environment: Mapping[str, str]) -> Path:
    """The absolute path of a daemon's data directory: as given, else from the environment, else the default."""
    return Path(os.path.realpath(os.path.expanduser(given or environment.get(DATA_VARIABLE) or DEFAULT_DATA_DIRECTORY)))


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that keepers and trials may have of it."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS_PREFIX)}
