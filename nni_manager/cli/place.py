"""Where the daemon is that a command means: on this machine, by its data directory, or elsewhere, by its URL."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from nni_manager.cli.data_directory import data_directory_option, resolve

#: The trial runner's NNI_MANAGER_URL is something else: one attempt's own address.
VARIABLE = "NNI_MANAGER_ADDRESS"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Exactly one of the two counts."""

    #: Of the manager elsewhere; empty: the daemon of `data_directory` is meant.
    url: str = ""
    data_directory: Path = Path()
    token_file: Path | None = None

    @property
    def is_elsewhere(self) -> bool:
        return bool(self.url)


def place_options(function: Function) -> Function:
    """Adds ``--data-dir``, ``--manager`` and ``--token-file``."""
    manager = click.option(
        "--manager", metavar="URL", help=f"A manager elsewhere, such as http://gpu-box:8080.  [default: {VARIABLE}]"
    )
    token_file = click.option(
        "--token-file", type=click.Path(path_type=Path),
        help="File with the token that --manager wants; or set NNI_MANAGER_TOKEN.",
    )  # fmt: skip
    return data_directory_option(manager(token_file(function)))


def place_of(data_dir: str | None, manager: str | None, token_file: Path | None) -> Place:
    """What options and environment say; options come first. Raises UsageError."""
    if data_dir is not None and manager is not None:
        raise click.UsageError("give either --manager or --data-dir, not both", click.get_current_context())
    url = manager if manager is not None or data_dir is not None else os.environ.get(VARIABLE)
    if token_file is not None and not url:
        raise click.UsageError("--token-file belongs to --manager", click.get_current_context())
    return Place(url=url, token_file=token_file) if url else Place(data_directory=resolve(data_dir))


def same_place() -> str:
    """What must be added to a command so that it means the same daemon as the one that runs."""
    given = click.get_current_context().params
    words = [(f"--{name.replace('_', '-')}", given.get(name)) for name in ("data_dir", "manager", "token_file")]
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in words if value)


def current() -> Place:
    """The place that the running command means."""
    given = click.get_current_context().params
    return place_of(given.get("data_dir"), given.get("manager"), given.get("token_file"))
