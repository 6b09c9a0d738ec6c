"""Consent to send secrets of this machine to a manager that asks for them."""

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
    help="A secret of this machine that a manager elsewhere may have: '${TOKEN}' or file:/path. May be repeated.",
)


def allowed_secrets(given: Collection[str], advice: str = "") -> Allow:
    """Allows the references in `given`; for others a person at the terminal is asked. `advice`: another way out."""

    def allow(asked: Sequence[str]) -> Collection[str]:
        others = [reference for reference in asked if reference not in given]
        if not others:
            return given
        if not sys.stdin.isatty():
            raise refuse_secrets(others, f"give --secret REF for each that it may have{advice}")
        names = "\n".join(f"  {reference}" for reference in others)
        question = f"The manager asks for these secrets of this machine:\n{names}\nSend them?"
        return asked if confirmed(question) else given

    return allow
