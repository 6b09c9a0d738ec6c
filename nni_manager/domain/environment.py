"""The environment of child processes: variables of the daemon that stay with it."""

from __future__ import annotations

from collections.abc import Mapping

#: What the name of every variable that sets the daemon up begins with; the token's does, too.
SETTINGS_PREFIX = "NNI_MANAGER_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that keepers and trials may have of it."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS_PREFIX)}
