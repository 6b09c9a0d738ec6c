"""Asks before secrets of this machine are sent to a manager on another machine."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import click

from nni_manager.cli.output import confirmed
from nni_manager.programs.request import Allow, refuse_secrets

secret_option = click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="REF",
    help="Secret of this machine that a manager on another machine may get: '${TOKEN}' or file:/path. Repeatable.",
)


def allowed_secrets(given: Collection[str], advice: str = "") -> Allow:
    """Allow the references in `given`; ask for others at the terminal. `advice`: an alternative for the error."""

    def allow(asked: Sequence[str]) -> Collection[str]:
        others = [reference for reference in asked if reference not in given]
        if not others:
            return given
        if not sys.stdin.isatty():
            raise refuse_secrets(others, f"give --secret REF for each that it may get{advice}")
        names = "\n".join(f"  {reference}" for reference in others)
        question = f"The manager asks for these secrets of this machine:\n{names}\nSend them?"
        return asked if confirmed(question) else given

    return allow
