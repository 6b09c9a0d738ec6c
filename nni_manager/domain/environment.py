"""The environment of child processes, without the daemon's own variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: Prefix of the variables of the daemon's settings, including the token.
SETTINGS_PREFIX = "NNI_MANAGER_"
DATA_VARIABLE = f"{SETTINGS_PREFIX}DATA"
PORT_VARIABLE = f"{SETTINGS_PREFIX}PORT"
DEFAULT_DATA_DIRECTORY = "~/nni-experiments"


def data_directory(given: str | None, environment: Mapping[str, str]) -> Path:
    """The absolute path of a daemon's data directory: given, else from the environment, else the default."""
    return Path(os.path.realpath(os.path.expanduser(given or environment.get(DATA_VARIABLE) or DEFAULT_DATA_DIRECTORY)))


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment for keepers and trials."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS_PREFIX)}
