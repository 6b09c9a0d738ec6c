"""How a command gets its client: from the daemon of its data directory, started when none runs, or by a URL."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.place import Place, place_of, place_options

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: What a command calls when it has read its own input and needs the daemon.
Connect = Callable[[], "ManagerClient"]


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which daemon is meant, and passes a `Connect` as the first argument.

    The context's object, when there is one, is used instead of the real connection: a function of the data directory.
    """

    @place_options
    @functools.wraps(command)
    def run(*, data_dir: str | None, manager: str | None, token_file: Path | None, **options: Any) -> None:
        place = place_of(data_dir, manager, token_file)
        substitute = click.get_current_context().obj
        command(lambda: substitute(place.data_directory) if substitute else connect(place), **options)

    return run


def connect(place: Place) -> ManagerClient:
    """Raises NniManagerError when nobody, or somebody else, answers there."""
    if place.is_elsewhere:
        from nni_manager.cli import elsewhere

        return elsewhere.reach(place.url, place.token_file)
    from nni_manager.cli import daemon
    from nni_manager.client.manager_client import ManagerClient

    return ManagerClient(daemon.reach(place.data_directory))
