"""Which data directory a command is about."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

# as in config.settings, whose import would cost every command ten milliseconds
VARIABLE = "NNI_MANAGER_DATA"
DEFAULT = "~/nni-experiments"

Function = TypeVar("Function", bound=Callable[..., Any])


def data_directory_option(function: Function) -> Function:
    """Adds ``--data-dir``; its value is None where it is not given."""
    text = f"Data directory of the daemon.  [default: {VARIABLE}, else {DEFAULT}]"
    return click.option("--data-dir", type=click.Path(file_okay=False), help=text)(function)


def resolve(given: str | None) -> Path:
    """The absolute path, as the daemon calls it."""
    return Path(os.path.realpath(os.path.expanduser(given or os.environ.get(VARIABLE) or DEFAULT)))
