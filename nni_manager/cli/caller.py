"""Options about the caller that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nni_manager.client.caller import DATA_VARIABLE, DEFAULT_DATA_DIRECTORY

Function = TypeVar("Function", bound=Callable[..., Any])


def data_directory_option(function: Function) -> Function:
    """Adds ``--data-dir`` to a command; its value is None where it is not given."""
    text = f"Data directory of the daemon.  [default: {DATA_VARIABLE}, else {DEFAULT_DATA_DIRECTORY}]"
    return click.option("--data-dir", type=click.Path(file_okay=False), help=text)(function)


tuner_python_option = click.option(
    "--tuner-python",
    "--tuner_python",
    metavar="PYTHON",
    default="",
    help="The Python that runs your own tuner or assessor.  [default: tunerPython of the file, else your python3]",
)
