"""The client of a manager on another machine, once it is certain that one answers there and its version fits ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nni_manager import __version__
from nni_manager.cli.caller import MANAGER_VARIABLE, environment_token, read_token
from nni_manager.cli.caller import TOKEN_VARIABLE as TOKEN_VARIABLE
from nni_manager.client.address import parse_url
from nni_manager.client.errors import TokenRefused
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import NniManagerError, NotFound
from nni_manager.domain.version import fits


def reach_remote(url: str, token_file: Path | None) -> ManagerClient:
    """A client of the manager at a URL, which has answered and whose version fits ours.

    Raises InvalidInput for what is no URL, Unreachable, AccessRefused, or NniManagerError for another server.
    """
    token = read_token(token_file) or environment_token()
    client = ManagerClient(parse_url(url, token))
    _check_version(_greet(client, bool(token)), client)
    return client


def _greet(client: ManagerClient, has_token: bool) -> Any:
    """The manager's description of itself."""
    try:
        return client.daemon()
    except TokenRefused:
        shown = "does not take the token it was shown" if has_token else "wants a token"
        raise TokenRefused(
            f"the manager at {client.address} {shown}; set {TOKEN_VARIABLE}, or give --token-file"
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
        f"what answers at {client.address} is no nni_manager; give --manager (or {MANAGER_VARIABLE}) the address that"
        " `nni-manager serve` prints"
    )
