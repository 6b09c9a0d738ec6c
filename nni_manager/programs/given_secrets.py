"""Secrets that an experiment's config refers to, looked up where the command is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


def require_secrets(references: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, reference → value. Raises InvalidInput, naming all that are missing."""
    found = {reference: _follow(reference, environment) for reference in references}
    missing = [f"{reference} {value}" for reference, value in found.items() if isinstance(value, ValueError)]
    if missing:
        raise InvalidInput("; ".join(missing))
    return {reference: value for reference, value in found.items() if isinstance(value, str)}


def secrets_of_experiment(client: ManagerClient, id: str, environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The secrets of an experiment's config that can be looked up here, as ``{"secrets": …}``; empty: none.

    For the others the daemon keeps its values.
    """
    found = {reference: _follow(reference, environment) for reference in client.experiment(id)["references"]}
    values = {reference: value for reference, value in found.items() if isinstance(value, str)}
    return {"secrets": values} if values else {}


def _follow(reference: str, environment: Mapping[str, str]) -> str | ValueError | None:
    from nni_manager.config.secrets import follow

    try:
        return follow(reference, environment)
    except ValueError as error:
        return error
