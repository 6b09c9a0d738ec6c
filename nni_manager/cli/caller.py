"""What the caller of a command brings along: the environment, and the Python of a tuner or assessor of their own."""

from __future__ import annotations

import os

import click

from nni_manager.domain.environment import without_settings

tuner_python_option = click.option(
    "--tuner-python", "--tuner_python", metavar="PYTHON", default="",
    help="The Python that runs your own tuner or assessor.  [default: tunerPython of the file, else your python3]",
)  # fmt: skip


def own_environment() -> dict[str, str]:
    """What trials get of our environment: not the daemon's settings and token, and nothing that is no UTF-8, for which
    JSON has no word."""
    return {name: value for name, value in without_settings(os.environ).items() if is_text(name + value)}


def program(name: str) -> str:
    """As a command line names it: a name stays, for the PATH to find, and a path starts where the caller is."""
    return os.path.abspath(os.path.expanduser(name)) if "/" in name else name


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
