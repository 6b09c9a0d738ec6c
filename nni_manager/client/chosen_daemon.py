"""The daemon to talk to: on this machine, by its data directory, or on another, by its URL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nni_manager.client.caller import MANAGER_VARIABLE, environment_token, read_token, resolve_data_directory

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDaemon:
    """The chosen daemon: the URL of a manager elsewhere, or a data directory."""

    #: URL of the manager elsewhere; empty: the daemon of `data_directory`.
    url: str = ""
    data_directory: Path = Path()
    token_file: Path | None = None

    @property
    def is_remote(self) -> bool:
        return bool(self.url)


def choose(data_dir: str | None, manager: str | None, token_file: Path | None = None) -> ChosenDaemon:
    """The daemon that the arguments choose, else the environment, else the default data directory."""
    url = manager if manager is not None or data_dir is not None else os.environ.get(MANAGER_VARIABLE)
    if url:
        return ChosenDaemon(url=url, token_file=token_file)
    return ChosenDaemon(data_directory=resolve_data_directory(data_dir))


def connect(place: ChosenDaemon) -> ManagerClient:
    """A client of the daemon; starts the local one if none runs.

    Raises NniManagerError when no manager answers at the address.
    """
    if place.is_remote:
        return _remote(place)
    from nni_manager.client import daemon
    from nni_manager.client.manager_client import ManagerClient

    return ManagerClient(daemon.reach(place.data_directory))


def find(place: ChosenDaemon) -> ManagerClient | None:
    """A client of the daemon; None: none of this machine answers, and none is started. Raises as `connect`."""
    if place.is_remote:
        return _remote(place)
    from nni_manager.client import address as addresses
    from nni_manager.client.manager_client import ManagerClient

    address = addresses.find(place.data_directory)
    return None if address is None else ManagerClient(address)


def _remote(place: ChosenDaemon) -> ManagerClient:
    from nni_manager.client.remote_manager import reach_remote

    return reach_remote(place.url, read_token(place.token_file) or environment_token())
