"""The terminal's width, colours and confirmations. A file or a pipe has neither width nor colours."""

from __future__ import annotations

import os
import shutil
import sys

import click

#: The colour of a status; a status without one looks like other text.
_COLOURS = {
    "SUCCEEDED": "green",
    "DONE": "green",
    "RUNNING": "cyan",
    "FAILED": "red",
    "SYS_CANCELED": "red",
    "ERROR": "red",
    "ON HOLD": "red",
    "UNKNOWN": "yellow",
    "EARLY_STOPPED": "yellow",
    "STOPPING": "yellow",
}


def width() -> int | None:
    """The terminal's width in columns; None: there is no terminal, so nothing is cut, wrapped or left out."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured_status(text: str) -> str:
    """A status in its colour. `text`: the status, perhaps with blanks around it, or with a colon and a sentence."""
    colour = _COLOURS.get(text.partition(":")[0].strip())
    return click.style(text, fg=colour) if colour and _has_colours() else text


def heading(text: str) -> str:
    return click.style(text, bold=True) if text and _has_colours() else text


def _has_colours() -> bool:
    """Whether output has colours; any value of the variable NO_COLOR switches them off (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def confirmed(question: str) -> bool:
    """Whether the answer is yes; without a terminal or a line of input it is no."""
    try:
        return click.confirm(question)
    except click.Abort:
        click.echo()
        return False
