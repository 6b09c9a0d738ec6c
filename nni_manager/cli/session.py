"""How a command gets its client: from the daemon of its data directory, started when none runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.data_directory import data_directory_option, resolve

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: What a command calls when it has read its own input and needs the daemon.
Connect = Callable[[], "ManagerClient"]


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Adds ``--data-dir``, and passes a `Connect` as the first argument.

    The context's object, when there is one, is used instead of the real connection: a function of the data directory.
    """

    @data_directory_option
    @functools.wraps(command)
    def run(*, data_dir: str | None, **options: Any) -> None:
        connect: Callable[[Path], ManagerClient] = click.get_current_context().obj or _connect
        command(lambda: connect(resolve(data_dir)), **options)

    return run


def _connect(data_dir: Path) -> ManagerClient:
    from nni_manager.cli import daemon
    from nni_manager.client.manager_client import ManagerClient

    return ManagerClient(daemon.reach(data_dir))
