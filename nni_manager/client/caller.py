"""The caller's side of a request: target daemon, data directory, token, environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager import __version__
from nni_manager.client.data_directory import require_trusted
from nni_manager.domain.environment import data_directory, without_settings
from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.text import parse_token
from nni_manager.domain.version import fits

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


#: URL of the manager. (NNI_MANAGER_URL is the trial runner's: the address for one attempt.)
MANAGER_VARIABLE = "NNI_MANAGER_ADDRESS"


def resolve_data_directory(given: str | None) -> Path:
    """The data directory, by this process's environment: see `domain.environment.data_directory`.

    Raises InvalidInput for a directory of another user.
    """
    directory = data_directory(given, os.environ)
    require_trusted(directory)
    return directory


TOKEN_VARIABLE = "NNI_MANAGER_TOKEN"  # noqa: S105 - a name, not a token


def read_token(file: Path | None, option: str = "--token-file") -> str | None:
    """The token in a file, or None without a file. Raises InvalidInput, never with the file's content."""
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidInput(f"{option} {file} cannot be read ({reason})") from None
    return _parsed(f"{option} {file}", text)


def environment_token() -> str:
    """The token in ``NNI_MANAGER_TOKEN``, or empty. Raises InvalidInput."""
    text = os.environ.get(TOKEN_VARIABLE, "")
    return _parsed(TOKEN_VARIABLE, text) if text else ""


def _parsed(source: str, text: str) -> str:
    try:
        return parse_token(text)
    except ValueError as error:
        raise InvalidInput(f"{source}: {error}") from None


def own_environment() -> dict[str, str]:
    """The caller's environment for trials: without the daemon's settings and token.

    Variables that are not UTF-8 are also omitted, because JSON cannot hold them.
    """
    return {name: value for name, value in without_settings(os.environ).items() if is_text(name + value)}


def program(name: str) -> str:
    """A program for the daemon: a bare name is kept, to be looked up on the PATH; a path becomes absolute."""
    return os.path.abspath(os.path.expanduser(name)) if "/" in name else name


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDaemon:
    """The chosen daemon: the URL of a manager on another machine, or a data directory."""

    #: URL of the manager on another machine; empty: the daemon of `data_directory`.
    url: str = ""
    data_directory: Path = Path()
    token_file: Path | None = None

    @property
    def is_remote(self) -> bool:
        return bool(self.url)


def choose(data_dir: str | None, manager: str | None, token_file: Path | None = None) -> ChosenDaemon:
    """The daemon from the arguments, else from the environment, else of the default data directory."""
    url = manager if manager is not None or data_dir is not None else os.environ.get(MANAGER_VARIABLE)
    if url:
        return ChosenDaemon(url=url, token_file=token_file)
    return ChosenDaemon(data_directory=resolve_data_directory(data_dir))


def connect(place: ChosenDaemon) -> ManagerClient:
    """A client of the daemon; starts the local one if none runs.

    Raises NniManagerError if no manager answers at the address.
    """
    if place.is_remote:
        return reach_remote(place.url, read_token(place.token_file) or environment_token())
    from nni_manager.client import daemon
    from nni_manager.client.manager_client import ManagerClient

    again = partial(daemon.reach_again, place.data_directory)
    return ManagerClient(daemon.reach(place.data_directory), again)


def find(place: ChosenDaemon) -> ManagerClient | None:
    """A client of the daemon; None if none answers on this machine. Starts none. Raises the exceptions of `connect`."""
    if place.is_remote:
        return reach_remote(place.url, read_token(place.token_file) or environment_token())
    from nni_manager.client import address as addresses
    from nni_manager.client.manager_client import ManagerClient

    address = addresses.find(place.data_directory)
    return None if address is None else ManagerClient(address)


def reach_remote(url: str, token: str = "") -> ManagerClient:
    """A client of the manager at a URL, after it answered with a compatible version. `token`: or empty.

    Raises InvalidInput for an invalid URL, Unreachable, AccessRefused, or NniManagerError for another server.
    """
    from nni_manager.client.address import parse_url
    from nni_manager.client.manager_client import ManagerClient

    client = ManagerClient(parse_url(url, token))
    daemon = _description(client, bool(token))
    version = daemon.get("version") if isinstance(daemon, dict) else None
    if not isinstance(version, str) or "dataDirectory" not in daemon:
        raise _not_a_manager(client)
    if not fits(__version__, version):
        raise NniManagerError(
            f"the manager at {client.address} has version {version}, this nnictl has {__version__}: their first two"
            " numbers must be equal. Install the manager's version here"
        )
    return client


def _description(client: ManagerClient, has_token: bool) -> Any:
    from nni_manager.client.answers import NotAnAnswer
    from nni_manager.client.connection import TokenRefused

    try:
        return client.daemon()
    except TokenRefused:
        shown = "refuses this token" if has_token else "requires a token"
        raise TokenRefused(
            f"the manager at {client.address} {shown}; set NNI_MANAGER_TOKEN, or give --token-file"
        ) from None
    except (NotAnAnswer, NotFound):
        raise _not_a_manager(client) from None


def _not_a_manager(client: ManagerClient) -> NniManagerError:
    return NniManagerError(
        f"the server at {client.address} is not nni_manager; set --manager (or NNI_MANAGER_ADDRESS) to the address"
        " that `nni-manager serve` prints"
    )
