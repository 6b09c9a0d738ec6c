"""Finds the manager at a URL, on another machine, and checks that its version fits."""

from __future__ import annotations

from typing import Any

from nni_manager import __version__
from nni_manager.client.address import parse_url
from nni_manager.client.connection import TokenRefused
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import NniManagerError, NotFound
from nni_manager.domain.version import fits


def reach_remote(url: str, token: str = "") -> ManagerClient:
    """A client of the manager at a URL, which has answered and has a fitting version. `token`: empty: none.

    Raises InvalidInput for an invalid URL, Unreachable, AccessRefused, or NniManagerError for another server.
    """
    client = ManagerClient(parse_url(url, token))
    _check_version(_description(client, bool(token)), client)
    return client


def _description(client: ManagerClient, has_token: bool) -> Any:
    """The manager's description of itself."""
    try:
        return client.daemon()
    except TokenRefused:
        shown = "does not take the token it was shown" if has_token else "wants a token"
        raise TokenRefused(
            f"the manager at {client.address} {shown}; set NNI_MANAGER_TOKEN, or give --token-file"
        ) from None
    except (ValueError, NotFound):
        raise _not_a_manager(client) from None


def _check_version(daemon: Any, client: ManagerClient) -> None:
    version = daemon.get("version") if isinstance(daemon, dict) else None
    if not isinstance(version, str) or "dataDirectory" not in daemon:
        raise _not_a_manager(client)
    if not fits(__version__, version):
        raise NniManagerError(
            f"the manager at {client.address} is version {version}, this nnictl is {__version__}: their first two"
            " numbers must be equal; install the manager's version here"
        )


def _not_a_manager(client: ManagerClient) -> NniManagerError:
    return NniManagerError(
        f"what answers at {client.address} is no nni_manager; give --manager (or NNI_MANAGER_ADDRESS) the address"
        " that `nni-manager serve` prints"
    )
