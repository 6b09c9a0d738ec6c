"""The daemon of a command: on this machine, by its data directory, or on another, by its URL."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nni_manager.client.caller import MANAGER_VARIABLE, ChosenDaemon, choose, connect, find
from nni_manager.client.data_directory import INSECURE_VARIABLE
from nni_manager.domain.environment import DATA_VARIABLE, DEFAULT_DATA_DIRECTORY
from nni_manager.domain.errors import NotFound

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient as ManagerClient
else:
    ManagerClient = Any  # for annotations: importing the class would take every command 20 ms


Function = TypeVar("Function", bound=Callable[..., Any])
#: The options that choose the daemon.
_OPTIONS = ("data_dir", "manager", "token_file")


def data_directory_option(function: Function) -> Function:
    """Add ``--data-dir`` to a command; the value is None by default."""
    text = f"Data directory of the daemon.  [default: {DATA_VARIABLE}, else {DEFAULT_DATA_DIRECTORY}]"
    insecure = click.option(
        "--insecure-data-dir",
        is_flag=True,
        expose_value=False,
        callback=_accept_insecure,
        help=f"Use a data directory that another user owns or may change.  [default: {INSECURE_VARIABLE}]",
    )
    return click.option("--data-dir", type=click.Path(file_okay=False), help=text)(insecure(function))


def _accept_insecure(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del context, parameter
    if value:
        os.environ[INSECURE_VARIABLE] = "1"  # also for a daemon that this command starts


tuner_python_option = click.option(
    "--tuner-python",
    "--tuner_python",
    metavar="PYTHON",
    default="",
    help="Python that runs your own tuner or assessor.  [default: tunerPython of the file, else your python3]",
)


def daemon_options(function: Function) -> Function:
    """Adds ``--data-dir``, ``--manager`` and ``--token-file`` to a command."""
    manager = click.option(
        "--manager",
        metavar="URL",
        help=f"A manager on another machine, such as http://gpu-box:8080.  [default: {MANAGER_VARIABLE}]",
    )
    token_file = click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="File with the token for --manager; or set NNI_MANAGER_TOKEN.",
    )
    return data_directory_option(manager(token_file(function)))


def current() -> ChosenDaemon:
    """The daemon of the running command, from its options or the environment. Raises UsageError."""
    given = click.get_current_context().params
    data_dir, manager, token_file = (given.get(name) for name in _OPTIONS)
    if data_dir is not None and manager is not None:
        raise click.UsageError("give either --manager or --data-dir, not both", click.get_current_context())
    place = choose(data_dir, manager, token_file)
    if token_file is not None and not place.is_remote:
        raise click.UsageError("--token-file requires --manager", click.get_current_context())
    return place


def same_daemon() -> str:
    """The options that make a suggested command use the same daemon."""
    given = click.get_current_context().params
    words = [(f"--{name.replace('_', '-')}", given.get(name)) for name in _OPTIONS]
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in words if value)


#: Connects to the daemon; commands call it after checking their input.
Connect = Callable[[], "ManagerClient"]


def finder() -> Callable[[], ManagerClient | None]:
    """A function, for any thread, that returns a client of the running daemon, or None.

    It never starts a daemon. It raises the exceptions of `caller.connect`.
    """
    place, substitute = current(), click.get_current_context().obj
    return (lambda: substitute(place.data_directory)) if substitute else (lambda: find(place))


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose the daemon to a command, and pass a `Connect` as its first argument.

    An object in click's context, data directory → client, replaces the real connection.
    """
    return _with_connection(command, lambda place: connect(place))


def to_read(command: Callable[..., None]) -> Callable[..., None]:
    """Like `connected`, for commands that only read: they start no daemon without experiments."""
    return _with_connection(command, lambda place: connect_to_read(place))


def _with_connection(
    command: Callable[..., None], reach: Callable[[ChosenDaemon], ManagerClient]
) -> Callable[..., None]:
    @daemon_options
    @functools.wraps(command)
    def run(**options: Any) -> None:
        place = current()
        substitute = click.get_current_context().obj
        own = {name: value for name, value in options.items() if name not in _OPTIONS}
        command(lambda: substitute(place.data_directory) if substitute else reach(place), **own)

    return run


def nothing_is_open() -> bool:
    """Whether no daemon runs and every experiment of the local data directory is closed."""
    from nni_manager.app import closed_experiments

    place = current()
    is_substituted = click.get_current_context().obj is not None
    return not place.is_remote and not is_substituted and closed_experiments.are_all_at_rest(place.data_directory)


def connect_to_read(place: ChosenDaemon) -> ManagerClient:
    """A client, as from `connect`. Without experiments, raises NotFound and starts no daemon."""
    from nni_manager.client import daemon

    if not place.is_remote and daemon.has_nothing(place.data_directory):
        raise NotFound(f"found no experiments in {place.data_directory}; `nnictl create` creates one")
    return connect(place)
